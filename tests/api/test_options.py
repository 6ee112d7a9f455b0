"""Options of `init`: keywords, environment, errors."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import octants as qd
from octants import options
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.options import ACCEPTED_AND_IGNORED, Options, make_options
from tests.golden_files import check_golden

QUADRANTS_OPTIONS = """
ad_stack_experimental_enabled ad_stack_size ad_stack_sparse_threshold_bytes advanced_optimization
arch auto_mesh_local_default_occupacy cache_loop_invariant_global_vars cfg_optimization
check_out_of_bound cpu_max_num_threads cuda_stack_limit debug debug_dump_path default_cpu_block_dim
default_fp default_gpu_block_dim default_ip demote_dense_struct_fors demote_no_access_mesh_fors
detect_read_only device_memory_GB device_memory_fraction enable_fallback
experimental_auto_mesh_local external_metal_command_queue
external_metal_command_queue_is_torch_queue fast_math flatten_if
force_scalarize_matrix gdb_trigger half2_vectorization kernel_profiler log_level make_block_local
make_cpu_multithreading_loop make_mesh_block_local make_thread_local max_block_dim
mesh_localize_all_attr_mappings mesh_localize_from_end_mapping mesh_localize_to_end_mapping
move_loop_invariant_outside_if num_compile_threads offline_cache offline_cache_cleaning_factor
offline_cache_cleaning_policy offline_cache_file_path offline_cache_max_size_of_files opt_level
optimize_mesh_reordered_mapping print_accessor_ir print_full_traceback print_ir print_ir_dbg_info
print_kernel_amdgcn print_kernel_asm print_kernel_llvm_ir print_kernel_llvm_ir_optimized
print_non_pure print_preprocessed_ir print_struct_llvm_ir quant_opt_atomic_demotion
quant_opt_store_fusion raise_on_templated_floats random_seed real_matrix_scalarize require_version
saturating_grid_dim short_circuit_operators src_ll_cache timeline unrolling_limit vk_api_version
""".split()

TAICHI_OPTIONS = """
allow_nv_shader_extension cpu_block_dim_adaptive gpu_max_reg lower_access
simplify_after_lower_access simplify_before_lower_access use_llvm verbose verbose_kernel_launches
""".split()


def test_defaults() -> None:
    chosen = make_options({}, {})
    assert chosen == Options()
    assert (chosen.default_fp, chosen.default_ip, chosen.random_seed) == ("f32", "i32", 0)
    assert not chosen.checks_bounds


@pytest.mark.parametrize("name", QUADRANTS_OPTIONS + TAICHI_OPTIONS)
def test_every_option_of_quadrants_and_taichi_is_known(name: str) -> None:
    assert name in options.FIELDS or name in ACCEPTED_AND_IGNORED


def test_no_option_is_both_used_and_ignored() -> None:
    assert not set(options.FIELDS) & ACCEPTED_AND_IGNORED


def test_keyword_beats_environment_and_octants_beats_qd() -> None:
    environment = {"QD_DEBUG": "1", "OCTANTS_RANDOM_SEED": "5", "QD_RANDOM_SEED": "6"}
    chosen = make_options({"debug": False}, environment)
    assert not chosen.debug
    assert chosen.random_seed == 5
    assert make_options({}, environment).debug


@pytest.mark.parametrize("text", ["0", "", "false", "no", "OFF"])
def test_words_of_the_environment_for_false(text: str) -> None:
    assert not make_options({}, {"QD_PRINT_IR": text}).print_ir


def test_other_words_of_the_environment() -> None:
    for variable, word in (("OCTANTS_DEBUG", "nann"), ("QD_PRINT_IR", "2")):
        with pytest.raises(OctantsRuntimeError, match=f"`{variable}` cannot be '{word}'"):
            make_options({}, {variable: word})
    assert make_options({}, {"OCTANTS_DEBUG": "nan"}).debug == "nan"
    assert make_options({}, {"OCTANTS_DEBUG": " Yes "}).debug is True


def test_debug_checks_bounds() -> None:
    assert make_options({"debug": True}, {}).checks_bounds
    assert make_options({"check_out_of_bound": True}, {}).checks_bounds


def test_what_decides_the_code_is_in_the_key() -> None:
    plain = make_options({}, {}).compilation_key()
    changes = [{"debug": True}, {"fast_math": False}, {"default_fp": "f64"}, {"opt_level": 0}]
    changes += [{"ad_stack_size": 5}]
    for change in changes:
        assert make_options(change, {}).compilation_key() != plain
    assert (
        make_options({"random_seed": 3, "ad_stack_budget_bytes": 1 << 20}, {}).compilation_key()
        == plain
    )


def test_none_is_the_default() -> None:
    assert make_options({"random_seed": None, "enable_fallback": None}, {}) == Options()


@pytest.mark.parametrize(
    ("name", "given", "environment"),
    [
        ("OCT402_unknown_option", {"debg": True}, {}),
        ("OCT402_default_up", {"default_up": "u32"}, {}),
        ("OCT403_type", {"debug": "yes"}, {}),
        ("OCT403_choice", {"default_fp": "f8"}, {}),
        ("OCT403_log_level", {"log_level": "loud"}, {}),
        ("OCT403_environment", {}, {"QD_CPU_MAX_NUM_THREADS": "two"}),
    ],
)
def test_errors(name: str, given: dict[str, object], environment: dict[str, str]) -> None:
    with pytest.raises(OctantsRuntimeError) as caught:
        make_options(given, environment)
    check_golden(f"errors/{name}", str(caught.value))


def test_only_options_reads_the_environment() -> None:
    root = Path(options.__file__).parent
    readers = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "os.environ" in path.read_text() or "getenv" in path.read_text()
    }
    assert readers <= {"options.py"}


def test_reset_gives_number_types_back() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, default_ip=qd.i64)
    assert qd.types.vector(2, float).dtype is qd.f64
    qd.reset()
    assert qd.types.vector(2, float).dtype is qd.f32
    assert qd.types.vector(2, int).dtype is qd.i32


def test_each_option_is_a_parameter_of_init_with_a_line_of_documentation() -> None:
    parameters = inspect.signature(qd.init).parameters
    assert set(options.FIELDS) <= set(parameters)
    text = inspect.getdoc(qd.init) or ""
    for name in parameters:
        assert re.search(rf"^ {{4}}{name}: ", text, re.MULTILINE), name


def test_an_option_that_is_none_is_that_of_the_environment(monkeypatch: Any) -> None:
    monkeypatch.setenv("OCTANTS_AD_STACK_SIZE", "7")
    qd.init(arch=qd.cpu, log_level="error", ad_stack_size=None)
    assert qd.cfg.ad_stack_size == 7
    qd.init(arch=qd.cpu, log_level="error", ad_stack_size=9)
    assert qd.cfg.ad_stack_size == 9
