/* The kernels of calls.c, chosen by a macro. Launches push the addresses of their arrays. */
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_KHR_shader_subgroup_arithmetic : require
layout(local_size_x = 256) in;
#ifdef COPIED
#define ELEMENT uvec4
#else
#define ELEMENT float
#endif
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Array { ELEMENT at[]; };
layout(push_constant) uniform Pushed { Array a, b, c; uint items; };

void main() {
    uint i = gl_GlobalInvocationID.x;
#if defined(DOUBLED)
    if (i < items) b.at[i] = 2.0 * a.at[i];
#elif defined(ADDED)
    if (i < items) a.at[i] += b.at[i];
#elif defined(SQUARES)
    float sum = subgroupAdd(i < items ? a.at[i] * a.at[i] : 0.0);
    if (i == 0) b.at[0] += sum;
#elif defined(SQUARES_BACK)
    if (i < items) c.at[i] += 2.0 * a.at[i] * b.at[0];
#elif defined(COPIED)
    for (; i < items; i += gl_NumWorkGroups.x * 256) b.at[i] = a.at[i];
#endif
}
