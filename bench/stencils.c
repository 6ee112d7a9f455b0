/* Reverse stencils by hand, in several forms: which is fastest, before a compiler writes it.
 *
 *   gcc -O2 -march=haswell -DW=8 stencils.c && ./a.out
 *   gcc -O2 -march=skylake-avx512 -mprefer-vector-width=512 -DW=16 stencils.c && ./a.out
 *
 * g is the adjoint of what a step wrote, m that of what it read at neighbours, o of its own element.
 *   masked    updates of vectors under a mask, one after the other
 *   plain     the same without masks
 *   in-tile   sums over the updates of one vector in registers; elements beyond it one by one
 *   sliding   the same, but what is beyond goes on to the next vector
 *   gather    each element adds up its terms, and g is cleared afterwards
 *   fission   terms in a buffer for a row, then a loop for each distance
 * Times are the least of 120 runs; the checksum of all forms must be the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifndef W
#define W 8
#endif
typedef float v __attribute__((vector_size(4*W)));
typedef float vu __attribute__((vector_size(4*W),aligned(4)));
typedef int vi __attribute__((vector_size(4*W)));
#define LD(p) ((v)*(const vu*)(p))
#define ST(p,x) (*(vu*)(p)=(vu)(x))
#define BAR asm volatile("":::"memory")
#if W==16
#include <immintrin.h>
#define MLD(p,n) ((v)_mm512_maskz_loadu_ps((__mmask16)((1u<<(n))-1),p))
#define MST(p,x,n) _mm512_mask_storeu_ps(p,(__mmask16)((1u<<(n))-1),(__m512)(x))
#else
#include <immintrin.h>
static inline __m256i mk(int n){return _mm256_cmpgt_epi32(_mm256_set1_epi32(n),_mm256_setr_epi32(0,1,2,3,4,5,6,7));}
#define MLD(p,n) ((v)_mm256_maskload_ps(p,mk(n)))
#define MST(p,x,n) _mm256_maskstore_ps(p,mk(n),(__m256)(x))
#endif
static const v Z={0};
// up by one: lanes of (prev,cur): result[k]=k?cur[k-1]:prev[W-1]
#if W==8
#define UP(prev,cur) __builtin_shuffle(prev,cur,(vi){7,8,9,10,11,12,13,14})
#define DOWN(cur,next) __builtin_shuffle(cur,next,(vi){1,2,3,4,5,6,7,8})
#define UP2(prev,cur) __builtin_shuffle(prev,cur,(vi){6,7,8,9,10,11,12,13})
#else
#define UP(prev,cur) __builtin_shuffle(prev,cur,(vi){15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30})
#define DOWN(cur,next) __builtin_shuffle(cur,next,(vi){1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16})
#define UP2(prev,cur) __builtin_shuffle(prev,cur,(vi){14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29})
#endif
#define N 128
#define ADD(p,x) do{ BAR; ST(p, LD(p)+(x)); BAR; }while(0)
#define MADD(p,x,n) do{ BAR; MST(p, MLD(p,n)+(x),n); BAR; }while(0)

// ---------------- wave
static void wave_rest(float*g,float*o,float*m,int i,int j,int e){ for(;j<e;j++){float G=g[i*N+j];g[i*N+j]=0;float c=.1f*G;o[i*N+j]-=G;
  m[i*N+j]+=2*G-.4f*G;m[i*N+j+1]+=c;m[i*N+j-1]+=c;m[(i+1)*N+j]+=c;m[(i-1)*N+j]+=c;}}
__attribute__((noinline)) void wave_masked(float*g,float*o,float*m){
 for(int i=1;i<N-1;i++) for(int j=1;j<N-1;j+=W){int n=N-1-j<W?N-1-j:W; int q=i*N+j;
  v G=MLD(g+q,n);MST(g+q,Z,n);v c=.1f*G;MADD(o+q,-G,n);MADD(m+q,2*G-.4f*G,n);MADD(m+q+1,c,n);MADD(m+q-1,c,n);MADD(m+q+N,c,n);MADD(m+q-N,c,n);}}
__attribute__((noinline)) void wave_plain(float*g,float*o,float*m){
 for(int i=1;i<N-1;i++){int j; for(j=1;j+W<=N-1;j+=W){ int q=i*N+j;
  v G=LD(g+q);ST(g+q,Z);v c=.1f*G;ADD(o+q,-G);ADD(m+q,2*G-.4f*G);ADD(m+q+1,c);ADD(m+q-1,c);ADD(m+q+N,c);ADD(m+q-N,c);} wave_rest(g,o,m,i,j,N-1);}}
__attribute__((noinline)) void wave_tile(float*g,float*o,float*m){ // A1: in-tile combine, scalar edges
 for(int i=1;i<N-1;i++){int j; for(j=1;j+W<=N-1;j+=W){ int q=i*N+j;
  v G=LD(g+q);ST(g+q,Z);v c=.1f*G;ADD(o+q,-G);
  v s=(2*G-.4f*G)+UP(Z,c)+DOWN(c,Z); ADD(m+q,s); m[q-1]+=c[0]; m[q+W]+=c[W-1]; BAR;
  ADD(m+q+N,c);ADD(m+q-N,c);} wave_rest(g,o,m,i,j,N-1);}}
__attribute__((noinline)) void wave_slide(float*g,float*o,float*m){ // A2
 for(int i=1;i<N-1;i++){int j; v carry=Z; for(j=1;j+W<=N-1;j+=W){ int q=i*N+j;
  v G=LD(g+q);ST(g+q,Z);v c=.1f*G;ADD(o+q,-G); v d=2*G-.4f*G;
  v s=carry+c+UP(Z,d)+UP2(Z,c); carry=UP(d,Z)*1.f; carry=__builtin_shuffle(d,Z,
#if W==8
  (vi){7,8,8,8,8,8,8,8})+__builtin_shuffle(c,Z,(vi){6,7,8,8,8,8,8,8});
#else
  (vi){15,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16})+__builtin_shuffle(c,Z,(vi){14,15,16,16,16,16,16,16,16,16,16,16,16,16,16,16});
#endif
  ADD(m+q-1,s); ADD(m+q+N,c);ADD(m+q-N,c);} m[i*N+j-1]+=carry[0]; m[i*N+j]+=carry[1]; BAR; wave_rest(g,o,m,i,j,N-1);}}
__attribute__((noinline)) void wave_gather(float*g,float*o,float*m){ // B: everyone gathers, then clear
 for(int i=0;i<N;i++){ int lo=i>=1&&i<N-1, up=i>=2, dn=i<N-2;int j;
  if(lo&&up&&dn){
   for(int k=0;k<2;k++){int j0=k?N-2:0; for(j=j0;j<j0+2;j++){float s=0; if(j>=1&&j<N-1){float G=g[i*N+j];s+=2*G-.4f*G; s+=.1f*g[(i-1)*N+j]+.1f*g[(i+1)*N+j];o[i*N+j]-=G;} if(j>=2)s+=.1f*g[i*N+j-1]; if(j<N-2)s+=.1f*g[i*N+j+1]; m[i*N+j]+=s;}}
   for(j=2;j+W<=N-2;j+=W){int q=i*N+j; v G=LD(g+q); v s=(2*G-.4f*G)+.1f*LD(g+q-1)+.1f*LD(g+q+1)+.1f*LD(g+q-N)+.1f*LD(g+q+N); ADD(m+q,s); ADD(o+q,-G);}
   for(;j<N-2;j++){float G=g[i*N+j];o[i*N+j]-=G;m[i*N+j]+=(2*G-.4f*G)+.1f*(g[i*N+j-1]+g[i*N+j+1]+g[i*N+j-N]+g[i*N+j+N]);}
  } else { for(j=0;j<N;j++){ float s=0; int a=j>=1&&j<N-1; if(lo&&a){float G=g[i*N+j];s+=2*G-.4f*G;o[i*N+j]-=G;} if(lo&&j>=2)s+=.1f*g[i*N+j-1]; if(lo&&j<N-2)s+=.1f*g[i*N+j+1]; if(up&&a)s+=.1f*g[(i-1)*N+j]; if(dn&&a)s+=.1f*g[(i+1)*N+j]; m[i*N+j]+=s;} }
 }
 for(int i=1;i<N-1;i++) memset(g+i*N+1,0,4*(N-2));}
__attribute__((noinline)) void wave_fission(float*g,float*o,float*m){ // C
 static float b0[N],b1[N];
 for(int i=1;i<N-1;i++){int j; for(j=1;j+W<=N-1;j+=W){ int q=i*N+j;
  v G=LD(g+q);ST(g+q,Z);v c=.1f*G;ADD(o+q,-G); ST(b0+j,2*G-.4f*G);ST(b1+j,c); ADD(m+q+N,c);ADD(m+q-N,c);} int e=j;
  for(j=1;j<e;j+=W) ADD(m+i*N+j,LD(b0+j)); for(j=1;j<e;j+=W) ADD(m+i*N+j+1,LD(b1+j)); for(j=1;j<e;j+=W) ADD(m+i*N+j-1,LD(b1+j));
  wave_rest(g,o,m,i,e,N-1);}}
__attribute__((noinline)) void wave_forward(float*u2,float*u0,float*u1){
 for(int i=1;i<N-1;i++){int j; for(j=1;j+W<=N-1;j+=W){ int q=i*N+j; v l=LD(u1+q-N)+LD(u1+q+N)+LD(u1+q-1)+LD(u1+q+1)-4*LD(u1+q); ST(u2+q,2*LD(u1+q)-LD(u0+q)+.1f*l);}
  for(;j<N-1;j++){int q=i*N+j;u2[q]=2*u1[q]-u0[q]+.1f*(u1[q-N]+u1[q+N]+u1[q-1]+u1[q+1]-4*u1[q]);}}}

// ---------------- 1-d diffusion, N1 elements: b[i]=a[i]+k*(a[i-1]-2a[i]+a[i+1])
#define N1 4096
static void d_rest(float*g,float*m,int j,int e){for(;j<e;j++){float G=g[j];g[j]=0;float c=.1f*G;m[j]+=G-.2f*G;m[j-1]+=c;m[j+1]+=c;}}
__attribute__((noinline)) void diff_masked(float*g,float*m){for(int j=1;j<N1-1;j+=W){int n=N1-1-j<W?N1-1-j:W;v G=MLD(g+j,n);MST(g+j,Z,n);v c=.1f*G;MADD(m+j,G-.2f*G,n);MADD(m+j-1,c,n);MADD(m+j+1,c,n);}}
__attribute__((noinline)) void diff_plain(float*g,float*m){int j;for(j=1;j+W<=N1-1;j+=W){v G=LD(g+j);ST(g+j,Z);v c=.1f*G;ADD(m+j,G-.2f*G);ADD(m+j-1,c);ADD(m+j+1,c);}d_rest(g,m,j,N1-1);}
__attribute__((noinline)) void diff_tile(float*g,float*m){int j;for(j=1;j+W<=N1-1;j+=W){v G=LD(g+j);ST(g+j,Z);v c=.1f*G;v s=(G-.2f*G)+UP(Z,c)+DOWN(c,Z);ADD(m+j,s);m[j-1]+=c[0];m[j+W]+=c[W-1];BAR;}d_rest(g,m,j,N1-1);}
__attribute__((noinline)) void diff_slide(float*g,float*m){int j;v pd=Z,pc=Z;for(j=1;j+W<=N1-1;j+=W){v G=LD(g+j);ST(g+j,Z);v c=.1f*G;v d=(G-.2f*G);v s=c+UP(pd,d)+UP2(pc,c);pd=d;pc=c;ADD(m+j-1,s);} m[j-1]+=pd[W-1]+pc[W-2];m[j]+=pc[W-1];BAR;d_rest(g,m,j,N1-1);}
__attribute__((noinline)) void diff_fission(float*g,float*m){static float b0[512],b1[512];int j=1;while(j+W<=N1-1){int s=j;int e=j+256;for(;j+W<=N1-1&&j<e;j+=W){v G=LD(g+j);ST(g+j,Z);ST(b0+j-s,G-.2f*G);ST(b1+j-s,.1f*G);}e=j;
 BAR;for(j=s;j<e;j+=W)ADD(m+j,LD(b0+j-s));for(j=s;j<e;j+=W)ADD(m+j+1,LD(b1+j-s));for(j=s;j<e;j+=W)ADD(m+j-1,LD(b1+j-s));}d_rest(g,m,j,N1-1);}
__attribute__((noinline)) void diff_gather(float*g,float*m){int j;m[0]+=.1f*g[1];m[1]+=.8f*g[1]+.1f*g[2];for(j=2;j+W<=N1-2;j+=W){v G=LD(g+j);ADD(m+j,G-.2f*G+.1f*LD(g+j-1)+.1f*LD(g+j+1));}for(;j<N1;j++){float s=0;if(j<N1-1)s+=.8f*g[j];s+=.1f*g[j-1];if(j<N1-2)s+=.1f*g[j+1];m[j]+=s;}memset(g+1,0,4*(N1-2));}
__attribute__((noinline)) void diff_forward(float*b,float*a){int j;for(j=1;j+W<=N1-1;j+=W){ST(b+j,LD(a+j)+.1f*(LD(a+j-1)-2*LD(a+j)+LD(a+j+1)));}for(;j<N1-1;j++)b[j]=a[j]+.1f*(a[j-1]-2*a[j]+a[j+1]);}

static double now(){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec+1e-9*t.tv_nsec;}
static float A[34*N*N],B[34*N*N]; 
static void fill(float*a,int n){unsigned s=1;for(int i=0;i<n;i++){s=s*1664525u+1013904223u;a[i]=(s>>8)*(1.f/(1<<24))-.5f;}}
typedef void(*f3)(float*,float*,float*); typedef void(*f2)(float*,float*);
int main(){
 struct{const char*n;f3 f;}w[]={{"forward",wave_forward},{"masked (as now)",wave_masked},{"plain",wave_plain},{"in-tile",wave_tile},{"sliding",wave_slide},{"gather",wave_gather},{"fission",wave_fission}};
 struct{const char*n;f2 f;}d[]={{"forward",diff_forward},{"masked",diff_masked},{"plain (as now)",diff_plain},{"in-tile",diff_tile},{"sliding",diff_slide},{"gather",diff_gather},{"fission",diff_fission}};
 double bw[7],bd[7];for(int k=0;k<7;k++)bw[k]=bd[k]=1e9; double cw[7],cd[7];
 for(int k=1;k<7;k++){fill(A,34*N*N);w[k].f(A+2*N*N,A,A+N*N);double s=0;for(int i=0;i<3*N*N;i++)s+=A[i]*((i*7919)%1013);cw[k]=s; fill(A,34*N*N);d[k].f(A,A+N1);s=0;for(int i=0;i<2*N1;i++)s+=A[i]*((i*7919)%1013);cd[k]=s;}
 for(int r=0;r<60;r++)for(int k=0;k<7;k++){memset(B,0,sizeof B);for(int q=0;q<2;q++){double t=now();for(int s=31;s>=0;s--)w[k].f(B+(s+2)*N*N,B+s*N*N,B+(s+1)*N*N);t=(now()-t)/32*1e6;if(t<bw[k])bw[k]=t;}
  for(int q=0;q<2;q++){double t=now();for(int s=31;s>=0;s--)d[k].f(B+(s+1)*N1,B+s*N1);t=(now()-t)/32*1e6;if(t<bd[k])bd[k]=t;}}
 printf("W=%d wave 128x128, us a step\n",W);for(int k=0;k<7;k++)printf("  %-16s %7.2f  check %.6g\n",w[k].n,bw[k],k?cw[k]:0);
 printf("diffusion 4096\n");for(int k=0;k<7;k++)printf("  %-16s %7.3f  check %.6g\n",d[k].n,bd[k],k?cd[k]:0);
}
