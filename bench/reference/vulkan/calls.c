/* What small launches and copies cost through Vulkan, written by hand: what a program pays for the
   driver and the GPU alone. ``calls FOLDER``, with the kernels of kernels.glsl in FOLDER as
   doubled.spv and so on. Prints a line for each row: a name, and the microseconds of a call, for
   each queue family that runs kernels. See bench/vulkan_by_hand.py. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vulkan/vulkan.h>

#define CHECK(call)                                                           \
    do {                                                                      \
        VkResult status = (call);                                             \
        if (status != VK_SUCCESS) {                                           \
            fprintf(stderr, "line %d: status %d\n", __LINE__, (int)status);   \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

enum { DOUBLED, ADDED, SQUARES, SQUARES_BACK, COPIED, KERNELS };
static const char *names[] = {"doubled", "added", "squares", "squares_back", "copied"};

typedef struct {
    uint64_t a, b, c;
    uint32_t items, unused;
} Pushed;

typedef struct {
    VkBuffer handle;
    VkDeviceMemory memory;
    uint64_t address;
    void *host;
} Buffer;

static VkPhysicalDevice physical;
static VkDevice device;
static VkQueue queue;
static VkCommandPool pool;
static VkPipelineLayout layout;
static VkPipeline pipelines[KERNELS];
static VkSemaphore timeline;
static VkFence fence;
static VkEvent event;
static uint64_t submitted;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * t.tv_sec + 1e-3 * t.tv_nsec;
}

/* -- set up --------------------------------------------------------------------------------- */

static VkPipeline make_pipeline(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.spv", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    static uint32_t words[1 << 16];
    size_t count = fread(words, 1, sizeof words, file);
    fclose(file);
    VkShaderModuleCreateInfo code = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
    code.codeSize = count;
    code.pCode = words;
    VkShaderModule module;
    CHECK(vkCreateShaderModule(device, &code, NULL, &module));
    VkComputePipelineCreateInfo info = {VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = module;
    info.stage.pName = "main";
    info.layout = layout;
    VkPipeline pipeline;
    CHECK(vkCreateComputePipelines(device, NULL, 1, &info, NULL, &pipeline));
    vkDestroyShaderModule(device, module, NULL);
    return pipeline;
}

static void open_device(uint32_t family, const char *folder) {
    float priority = 1;
    VkDeviceQueueCreateInfo queues = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
    queues.queueFamilyIndex = family;
    queues.queueCount = 1;
    queues.pQueuePriorities = &priority;
    VkPhysicalDeviceVulkan12Features features = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    features.timelineSemaphore = features.bufferDeviceAddress = VK_TRUE;
    VkDeviceCreateInfo info = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features};
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queues;
    CHECK(vkCreateDevice(physical, &info, NULL, &device));
    vkGetDeviceQueue(device, family, 0, &queue);
    VkCommandPoolCreateInfo pools = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    pools.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
    pools.queueFamilyIndex = family;
    CHECK(vkCreateCommandPool(device, &pools, NULL, &pool));
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(Pushed)};
    VkPipelineLayoutCreateInfo layouts = {VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
    layouts.pushConstantRangeCount = 1;
    layouts.pPushConstantRanges = &range;
    CHECK(vkCreatePipelineLayout(device, &layouts, NULL, &layout));
    for (int k = 0; k < KERNELS; k++) pipelines[k] = make_pipeline(folder, names[k]);
    VkSemaphoreTypeCreateInfo kind = {VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
    kind.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkSemaphoreCreateInfo semaphores = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &kind};
    CHECK(vkCreateSemaphore(device, &semaphores, NULL, &timeline));
    VkFenceCreateInfo fences = {VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    CHECK(vkCreateFence(device, &fences, NULL, &fence));
    VkEventCreateInfo events = {VK_STRUCTURE_TYPE_EVENT_CREATE_INFO};
    CHECK(vkCreateEvent(device, &events, NULL, &event));
    submitted = 0;
}

/* A buffer in the first memory type with all of some properties and none of others. */
static int make_buffer(Buffer *made, uint64_t nbytes, uint32_t wanted, uint32_t unwanted) {
    VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    info.size = nbytes;
    info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                 VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    CHECK(vkCreateBuffer(device, &info, NULL, &made->handle));
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(device, made->handle, &needs);
    VkPhysicalDeviceMemoryProperties types;
    vkGetPhysicalDeviceMemoryProperties(physical, &types);
    for (uint32_t k = 0; k < types.memoryTypeCount; k++) {
        uint32_t has = types.memoryTypes[k].propertyFlags;
        if (!(needs.memoryTypeBits >> k & 1) || (has & wanted) != wanted || has & unwanted) continue;
        VkMemoryAllocateFlagsInfo flags = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO};
        flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
        VkMemoryAllocateInfo memory = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags};
        memory.allocationSize = needs.size;
        memory.memoryTypeIndex = k;
        if (vkAllocateMemory(device, &memory, NULL, &made->memory) != VK_SUCCESS) continue;
        CHECK(vkBindBufferMemory(device, made->handle, made->memory, 0));
        VkBufferDeviceAddressInfo asked = {VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO};
        asked.buffer = made->handle;
        made->address = vkGetBufferDeviceAddress(device, &asked);
        made->host = NULL;
        if (has & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)
            CHECK(vkMapMemory(device, made->memory, 0, VK_WHOLE_SIZE, 0, &made->host));
        return 1;
    }
    vkDestroyBuffer(device, made->handle, NULL);
    return 0;
}

static void free_buffer(Buffer *made) {
    vkDestroyBuffer(device, made->handle, NULL);
    vkFreeMemory(device, made->memory, NULL);
}

/* -- commands ------------------------------------------------------------------------------- */

static VkCommandBuffer new_commands(void) {
    VkCommandBufferAllocateInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    info.commandPool = pool;
    info.commandBufferCount = 1;
    VkCommandBuffer commands;
    CHECK(vkAllocateCommandBuffers(device, &info, &commands));
    return commands;
}

static void begin(VkCommandBuffer commands) {
    VkCommandBufferBeginInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    info.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
    CHECK(vkBeginCommandBuffer(commands, &info));
}

#define KERNEL VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
#define TRANSFER VK_PIPELINE_STAGE_TRANSFER_BIT
#define HOST VK_PIPELINE_STAGE_HOST_BIT

static void order(VkCommandBuffer commands, uint32_t before, uint32_t after) {
    VkMemoryBarrier barrier = {VK_STRUCTURE_TYPE_MEMORY_BARRIER};
    barrier.srcAccessMask = (before & KERNEL ? VK_ACCESS_SHADER_WRITE_BIT : 0) |
                            (before & TRANSFER ? VK_ACCESS_TRANSFER_WRITE_BIT : 0);
    barrier.dstAccessMask =
        (after & KERNEL ? VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_SHADER_READ_BIT : 0) |
        (after & TRANSFER ? VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT : 0) |
        (after & HOST ? VK_ACCESS_HOST_READ_BIT : 0);
    vkCmdPipelineBarrier(commands, before, after, 0, 1, &barrier, 0, NULL, 0, NULL);
}

static void launch(VkCommandBuffer commands, int kernel, uint64_t a, uint64_t b, uint64_t c,
                   uint32_t items, uint32_t groups) {
    Pushed pushed = {a, b, c, items, 0};
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipelines[kernel]);
    vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof pushed, &pushed);
    vkCmdDispatch(commands, groups, 1, 1);
}

enum { SPINS, SLEEPS, ON_FENCE, SPINS_ON_FENCE, ON_EVENT, WAYS };
static const char *ways[] = {"spin on the timeline semaphore", "sleep on the timeline semaphore",
                             "wait for a fence", "spin on a fence", "spin on an event"};

static void submit(int count, VkCommandBuffer *commands, int way) {
    VkTimelineSemaphoreSubmitInfo order = {VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
    VkSubmitInfo info = {VK_STRUCTURE_TYPE_SUBMIT_INFO};
    uint64_t number = submitted + 1;
    info.commandBufferCount = count;
    info.pCommandBuffers = commands;
    if (way <= SLEEPS) {
        submitted = number;
        order.signalSemaphoreValueCount = 1;
        order.pSignalSemaphoreValues = &number;
        info.pNext = &order;
        info.signalSemaphoreCount = 1;
        info.pSignalSemaphores = &timeline;
    }
    CHECK(vkQueueSubmit(queue, 1, &info, way == ON_FENCE || way == SPINS_ON_FENCE ? fence : NULL));
}

static void await(int way) {
    uint64_t reached = 0;
    if (way == SPINS) {
        while (reached < submitted) CHECK(vkGetSemaphoreCounterValue(device, timeline, &reached));
    } else if (way == SLEEPS) {
        VkSemaphoreWaitInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
        info.semaphoreCount = 1;
        info.pSemaphores = &timeline;
        info.pValues = &submitted;
        CHECK(vkWaitSemaphores(device, &info, UINT64_MAX));
    } else if (way == ON_FENCE || way == SPINS_ON_FENCE) {
        if (way == ON_FENCE) CHECK(vkWaitForFences(device, 1, &fence, VK_TRUE, UINT64_MAX));
        while (vkGetFenceStatus(device, fence) != VK_SUCCESS) {}
        CHECK(vkResetFences(device, 1, &fence));
    } else {
        while (vkGetEventStatus(device, event) != VK_EVENT_SET) {}
        CHECK(vkResetEvent(device, event));
    }
}

static void run(VkCommandBuffer commands) {
    submit(1, &commands, SPINS);
    await(SPINS);
}

/* -- rows ----------------------------------------------------------------------------------- */

#define BEST(best, runs, count, body)                            \
    double best = 1e30;                                          \
    for (int run_ = 0; run_ < (runs); run_++) {                  \
        double start_ = now();                                   \
        body;                                                    \
        double took_ = (now() - start_) / (count);               \
        if (took_ < best) best = took_;                          \
    }

static void row(uint32_t family, const char *name, double microseconds) {
    printf("family %u | %s | %.2f\n", family, name, microseconds);
    fflush(stdout);
}

static void waits(uint32_t family, Buffer *a, Buffer *b) {
    char name[200];
    VkCommandBuffer empty = new_commands(), one = new_commands(), told = new_commands();
    begin(empty);
    CHECK(vkEndCommandBuffer(empty));
    begin(one);
    launch(one, DOUBLED, a->address, b->address, 0, 4, 1);
    order(one, KERNEL, HOST);
    CHECK(vkEndCommandBuffer(one));
    begin(told);
    launch(told, DOUBLED, a->address, b->address, 0, 4, 1);
    order(told, KERNEL, HOST);
    vkCmdSetEvent(told, event, KERNEL);
    CHECK(vkEndCommandBuffer(told));
    for (int way = 0; way < WAYS; way++) {
        VkCommandBuffer used = way == ON_EVENT ? told : one;
        if (way != ON_EVENT) {
            BEST(nothing, 300, 1, submit(1, &empty, way); await(way));
            snprintf(name, sizeof name, "no command, submitted again, %s", ways[way]);
            row(family, name, nothing);
        }
        BEST(again, 300, 1, submit(1, &used, way); await(way));
        snprintf(name, sizeof name, "a launch, submitted again, %s", ways[way]);
        row(family, name, again);
    }
    VkCommandBuffer fresh = new_commands();
    BEST(recorded, 300, 1, begin(fresh); launch(fresh, DOUBLED, a->address, b->address, 0, 4, 1);
         order(fresh, KERNEL, HOST); CHECK(vkEndCommandBuffer(fresh)); run(fresh));
    row(family, "a launch, recorded and submitted, spin on the timeline semaphore", recorded);
    double least = 1e30;
    for (int k = 0; k < 300; k++) {
        double start = now();
        submit(1, &one, SPINS);
        double took = now() - start;
        if (took < least) least = took;
        await(SPINS);
    }
    row(family, "vkQueueSubmit of a launch by itself", least);
}

/* Launches in a row, so many to a submission; each waits for the one before, or none does. */
static void in_a_row(uint32_t family, Buffer *a, Buffer *b, int count, int each, int waits_before) {
    char name[200];
    VkCommandBuffer commands[16];
    int buffers = each * 16 >= count ? (count + each - 1) / each : 16;
    for (int k = 0; k < buffers; k++) {
        commands[k] = new_commands();
        begin(commands[k]);
        for (int j = 0; j < each; j++) {
            if (waits_before) order(commands[k], KERNEL, KERNEL);
            launch(commands[k], DOUBLED, a->address, b->address, 0, 4, 1);
        }
        CHECK(vkEndCommandBuffer(commands[k]));
    }
    BEST(again, 8, count,
         for (int k = 0; k < count / each; k++) submit(1, &commands[k % buffers], SPINS);
         await(SPINS));
    snprintf(name, sizeof name, "%d launches in a row, %d to a submission, recorded before, %s", count,
             each, waits_before ? "each after the other" : "at the same time");
    row(family, name, again);
    if (each * 16 < count) return;
    BEST(fresh, 8, count, for (int k = 0; k < count / each; k++) {
        begin(commands[k]);
        for (int j = 0; j < each; j++) {
            if (waits_before) order(commands[k], KERNEL, KERNEL);
            launch(commands[k], DOUBLED, a->address, b->address, 0, 4, 1);
        }
        CHECK(vkEndCommandBuffer(commands[k]));
        submit(1, &commands[k], SPINS);
    } await(SPINS));
    snprintf(name, sizeof name, "%d launches in a row, %d to a submission, recorded each time, %s",
             count, each, waits_before ? "each after the other" : "at the same time");
    row(family, name, fresh);
}

/* a[i] += b[i], both from the host and a back to it. */
static void two_arrays(uint32_t family, Buffer *near, Buffer *cached, Buffer *far) {
    static float a[64], b[64];
    int size = sizeof a;
    VkCommandBuffer commands = new_commands();
    begin(commands); /* in memory of the GPU that the host writes and reads */
    launch(commands, ADDED, near->address, near->address + 4096, 0, 64, 1);
    order(commands, KERNEL, HOST);
    CHECK(vkEndCommandBuffer(commands));
    if (near->host) {
        float *x = near->host, *y = x + 1024;
        BEST(took, 300, 1, memcpy(x, a, size); memcpy(y, b, size); run(commands);
             memcpy(a, x, size));
        row(family, "two arrays of the host, in memory of the GPU that is mapped", took);
    }
    begin(commands); /* in memory of the host */
    launch(commands, ADDED, cached->address, cached->address + 4096, 0, 64, 1);
    order(commands, KERNEL, HOST);
    CHECK(vkEndCommandBuffer(commands));
    float *x = cached->host, *y = x + 1024;
    BEST(there, 300, 1, memcpy(x, a, size); memcpy(y, b, size); run(commands); memcpy(a, x, size));
    row(family, "two arrays of the host, in memory of the host", there);
    begin(commands); /* copied to and from memory of the GPU */
    VkBufferCopy piece = {0, 0, 8192}, back = {0, 0, size};
    vkCmdCopyBuffer(commands, cached->handle, far->handle, 1, &piece);
    order(commands, TRANSFER, KERNEL);
    launch(commands, ADDED, far->address, far->address + 4096, 0, 64, 1);
    order(commands, KERNEL, TRANSFER);
    vkCmdCopyBuffer(commands, far->handle, cached->handle, 1, &back);
    order(commands, TRANSFER, HOST);
    CHECK(vkEndCommandBuffer(commands));
    BEST(copied, 300, 1, memcpy(x, a, size); memcpy(y, b, size); run(commands); memcpy(a, x, size));
    row(family, "two arrays of the host, copied by commands", copied);
    if (!near->host) return;
    begin(commands); /* to the GPU's memory by the host, back by a command */
    launch(commands, ADDED, near->address, near->address + 4096, 0, 64, 1);
    order(commands, KERNEL, TRANSFER);
    vkCmdCopyBuffer(commands, near->handle, cached->handle, 1, &back);
    order(commands, TRANSFER, HOST);
    CHECK(vkEndCommandBuffer(commands));
    float *p = near->host, *q = p + 1024;
    BEST(mixed, 300, 1, memcpy(p, a, size); memcpy(q, b, size); run(commands); memcpy(a, x, size));
    row(family, "two arrays of the host, written by it and copied back by a command", mixed);
}

/* loss = sum of a[i]^2 and its gradient: clear the loss and all gradients, seed, forward, back. */
static void record_tape(VkCommandBuffer commands, Buffer *far, int clears_by_fill) {
    uint64_t x = far->address, gradient = x + 4096, loss = x + 8192, seed = x + 12288;
    order(commands, KERNEL, KERNEL | TRANSFER);
    if (clears_by_fill) {
        vkCmdFillBuffer(commands, far->handle, 4096, 16, 0);
        vkCmdFillBuffer(commands, far->handle, 8192, 4, 0);
        vkCmdFillBuffer(commands, far->handle, 12288, 4, 0x3f800000);
    } else {
        launch(commands, DOUBLED, gradient, gradient, 0, 4, 1);
    }
    order(commands, KERNEL | TRANSFER, KERNEL);
    launch(commands, SQUARES, x, loss, 0, 4, 1);
    order(commands, KERNEL, KERNEL);
    launch(commands, SQUARES_BACK, x, seed, gradient, 4, 1);
}

static void tape(uint32_t family, Buffer *far) {
    enum { COUNT = 300, BUFFERS = 4 };
    VkCommandBuffer commands[BUFFERS];
    uint64_t numbers[BUFFERS];
    for (int clears = 0; clears < 2; clears++) {
        const char *how = clears ? "fills" : "one kernel that clears";
        char name[200];
        for (int k = 0; k < BUFFERS; k++) {
            commands[k] = new_commands();
            begin(commands[k]);
            record_tape(commands[k], far, clears);
            CHECK(vkEndCommandBuffer(commands[k]));
            numbers[k] = 0;
        }
        BEST(again, 8, COUNT, for (int k = 0; k < COUNT; k++) submit(1, commands, SPINS);
             await(SPINS));
        snprintf(name, sizeof name, "tapes in a row, submitted again, %s", how);
        row(family, name, again);
        BEST(alone, 300, 1, run(commands[0]));
        snprintf(name, sizeof name, "a tape and a wait, submitted again, %s", how);
        row(family, name, alone);
        BEST(fresh, 8, COUNT, for (int k = 0; k < COUNT; k++) {
            int n = k % BUFFERS;
            for (uint64_t reached = 0; reached < numbers[n];)
                CHECK(vkGetSemaphoreCounterValue(device, timeline, &reached));
            begin(commands[n]);
            record_tape(commands[n], far, clears);
            CHECK(vkEndCommandBuffer(commands[n]));
            submit(1, &commands[n], SPINS);
            numbers[n] = submitted;
        } await(SPINS));
        snprintf(name, sizeof name, "tapes in a row, recorded each time, %s", how);
        row(family, name, fresh);
    }
}

/* Copies within the GPU: by a command, and by a kernel of 16 bytes to a thread and step. */
static void copies(uint32_t family) {
    Buffer of, to;
    uint64_t most = 256 << 20;
    if (!make_buffer(&of, most, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0)) return;
    if (!make_buffer(&to, most, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0)) return;
    VkCommandBuffer commands = new_commands();
    char name[200];
    for (uint64_t nbytes = 4096; nbytes <= most; nbytes *= 4) {
        int count = nbytes > (16 << 20) ? 10 : 50;
        begin(commands);
        VkBufferCopy piece = {0, 0, nbytes};
        for (int k = 0; k < count; k++) {
            order(commands, TRANSFER, TRANSFER);
            vkCmdCopyBuffer(commands, of.handle, to.handle, 1, &piece);
        }
        CHECK(vkEndCommandBuffer(commands));
        run(commands);
        BEST(took, 4, count, run(commands));
        snprintf(name, sizeof name, "copy of %llu bytes by a command", (unsigned long long)nbytes);
        row(family, name, took);
        for (uint32_t most_groups = 1 << 11; most_groups <= 1 << 20; most_groups <<= 9) {
            uint32_t items = nbytes / 16, groups = (items + 255) / 256;
            if (groups > most_groups) groups = most_groups;
            if (groups > 65535) groups = 65535;
            begin(commands);
            for (int k = 0; k < count; k++) {
                order(commands, KERNEL, KERNEL);
                launch(commands, COPIED, of.address, to.address, 0, items, groups);
            }
            CHECK(vkEndCommandBuffer(commands));
            run(commands);
            BEST(by_kernel, 4, count, run(commands));
            snprintf(name, sizeof name, "copy of %llu bytes by a kernel of %u workgroups",
                     (unsigned long long)nbytes, groups);
            row(family, name, by_kernel);
        }
    }
    free_buffer(&of);
    free_buffer(&to);
}

static void measure(uint32_t family, const char *folder) {
    Buffer near, cached, far;
    uint32_t mapped =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    open_device(family, folder);
    if (!make_buffer(&far, 65536, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0)) exit(1);
    if (!make_buffer(&near, 65536, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | mapped, 0)) near = far;
    if (!make_buffer(&cached, 65536, mapped | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, 0) &&
        !make_buffer(&cached, 65536, mapped, 0))
        exit(1);
    VkCommandBuffer warm = new_commands();
    begin(warm);
    for (int k = 0; k < 20000; k++) {
        order(warm, KERNEL, KERNEL);
        launch(warm, DOUBLED, far.address, far.address + 4096, 0, 4, 1);
    }
    CHECK(vkEndCommandBuffer(warm));
    for (int k = 0; k < 3; k++) run(warm);
    waits(family, &far, &near);
    in_a_row(family, &far, &near, 1000, 64, 1);
    in_a_row(family, &far, &near, 1000, 64, 0);
    in_a_row(family, &far, &near, 1000, 1000, 1);
    in_a_row(family, &far, &near, 1000, 1000, 0);
    in_a_row(family, &far, &near, 1000, 1, 1);
    two_arrays(family, &near, &cached, &far);
    tape(family, &far);
    copies(family);
    CHECK(vkDeviceWaitIdle(device));
}

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: calls FOLDER\n");
        return 1;
    }
    VkApplicationInfo application = {VK_STRUCTURE_TYPE_APPLICATION_INFO};
    application.apiVersion = VK_API_VERSION_1_2;
    VkInstanceCreateInfo info = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    info.pApplicationInfo = &application;
    VkInstance instance;
    CHECK(vkCreateInstance(&info, NULL, &instance));
    VkPhysicalDevice all[16];
    uint32_t devices = 16;
    vkEnumeratePhysicalDevices(instance, &devices, all);
    for (uint32_t k = 0; k < devices; k++) {
        VkPhysicalDeviceProperties properties;
        vkGetPhysicalDeviceProperties(all[k], &properties);
        if (!physical || properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU) {
            physical = all[k];
            printf("device | %s | 0\n", properties.deviceName);
            if (properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU) break;
        }
    }
    VkQueueFamilyProperties families[16];
    uint32_t kinds = 16;
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &kinds, families);
    for (uint32_t k = 0; k < kinds; k++)
        printf("family %u | flags %u | %u\n", k, families[k].queueFlags, families[k].queueCount);
    for (uint32_t k = 0; k < kinds; k++)
        if (families[k].queueFlags & VK_QUEUE_COMPUTE_BIT) measure(k, arguments[1]);
    return 0;
}
