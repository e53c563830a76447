// Measure what a GEMM loses beside device-to-device copies at a set rate, over GEMM shape, copy rate and who copies.
//
//   nvcc -O2 -std=c++17 -o measure_contention scripts/measure_contention.cu -lcublas
//   ./measure_contention --gemm 8192x4256x2128,8192x8192x8192 --rates 25,50,100,200,max --out measured.csv
//   t3 validate h100-sxm --rows measured.csv
//
// For each shape and rate the GEMM is timed alone, then beside copies: by copy engines (copies that the host gives out
// when they are due), and by a kernel on few compute units. Options are in USAGE below. With --to 1 the copies go to
// GPU 1. Without it the kernel copies within the GPU, and the engines to the host's memory: within a GPU the driver
// takes compute units for a copy.
// The GEMM runs back to back with itself: it finds its operands in the cache as far as they fit, alone and beside
// copies.

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

// Host logic: the command line, statistics, the table. It calls nothing of CUDA.

constexpr const char *USAGE =
    "measure_contention [--gemm MxNxK,...] [--rates GB/s,...|max] [--copiers engine,kernel] [--blocks N]\n"
    "                   [--repeats N] [--to GPU] [--out FILE]\n"
    "a rate of 0 holds the kernel's compute units and copies nothing\n";
constexpr double HOLDS_ONLY = 0, AS_FAST_AS_IT_GOES = -1;

struct Shape {
    int m, n, k;
};

struct Options {
    std::vector<Shape> shapes = {{8192, 4256, 2128}, {8192, 4096, 512}, {1024, 8192, 8192}};
    std::vector<double> rates = {HOLDS_ONLY, 25, 50, 100, 200, AS_FAST_AS_IT_GOES};  // GB/s that are copied
    std::vector<std::string> copiers = {"engine", "kernel"};
    int blocks = 8;  // of the copying kernel: as many compute units as it takes
    int repeats = 50;
    int to = 0;  // GPU that the copies go to; they come from GPU 0, where the GEMM is
    std::string out;
};

struct Gpu {
    std::string name, date;
    int driver, runtime;
};

struct Times {  // of one GEMM, in microseconds
    double median, tenth, ninetieth;
};

struct Point {
    Shape shape;
    std::string copier;
    double asked_gb_per_s, reached_gb_per_s;
    Times alone, beside;
};

std::vector<std::string> split(const std::string &text, char at) {
    std::vector<std::string> parts;
    size_t first = 0;
    for (size_t end; (end = text.find(at, first)) != std::string::npos; first = end + 1)
        parts.push_back(text.substr(first, end - first));
    parts.push_back(text.substr(first));
    return parts;
}

int whole(const std::string &option, const std::string &text, int least, int most) {
    char *end;
    long value = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end || value < least || value > most)
        throw std::invalid_argument(option + " " + text + ": a whole number from " + std::to_string(least) + " to " +
                                    std::to_string(most) + " is needed");
    return static_cast<int>(value);
}

Shape shape_of(const std::string &text) {
    auto sides = split(text, 'x');
    if (sides.size() != 3) throw std::invalid_argument("--gemm " + text + ": MxNxK is needed, such as 8192x4096x2048");
    constexpr int longest = 1 << 18;
    return {whole("--gemm", sides[0], 1, longest), whole("--gemm", sides[1], 1, longest),
            whole("--gemm", sides[2], 1, longest)};
}

double rate_of(const std::string &text) {
    if (text == "max") return AS_FAST_AS_IT_GOES;
    char *end;
    double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end || !(value == HOLDS_ONLY || (value >= 0.1 && value <= 1e5)))
        throw std::invalid_argument("--rates " + text + ": 0, GB/s from 0.1 to 100000, or max, are needed");
    return value;
}

Options options_of(const std::vector<std::string> &arguments) {
    Options options;
    for (size_t place = 0; place < arguments.size(); place += 2) {
        const std::string &name = arguments[place];
        if (place + 1 == arguments.size()) throw std::invalid_argument(name + ": a value is needed");
        const std::string &value = arguments[place + 1];
        if (name == "--gemm") {
            options.shapes.clear();
            for (auto &one : split(value, ',')) options.shapes.push_back(shape_of(one));
        } else if (name == "--rates") {
            options.rates.clear();
            for (auto &one : split(value, ',')) options.rates.push_back(rate_of(one));
        } else if (name == "--copiers") {
            options.copiers = split(value, ',');
            for (auto &one : options.copiers)
                if (one != "engine" && one != "kernel")
                    throw std::invalid_argument("--copiers " + one + ": engine or kernel is needed");
        } else if (name == "--blocks") {
            options.blocks = whole(name, value, 1, 1024);
        } else if (name == "--repeats") {
            options.repeats = whole(name, value, 1, 100000);
        } else if (name == "--to") {
            options.to = whole(name, value, 0, 63);
        } else if (name == "--out") {
            options.out = value;
        } else {
            throw std::invalid_argument(name + " is unknown\n" + USAGE);
        }
    }
    return options;
}

Times times_of(std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    auto at = [&](double share) { return samples[static_cast<size_t>(share * (samples.size() - 1) + 0.5)]; };
    return {at(0.5), at(0.1), at(0.9)};
}

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", value);
    return text;
}

std::string csv_of(const Gpu &gpu, const Options &options, const std::vector<Point> &points) {
    std::string made = "gpu,compute,by,units,gb_per_s,alone_us,beside_us,alone_spread_us,beside_spread_us,source\n";
    const std::string source = "measure_contention.cu " + gpu.date + " CUDA " + std::to_string(gpu.runtime) +
                               " driver " + std::to_string(gpu.driver);
    for (const Point &point : points) {
        const bool kernel = point.copier == "kernel";
        const std::string by = !kernel ? "copy engines"
                               : point.asked_gb_per_s == HOLDS_ONLY ? "held units"
                               : options.to ? "units that copy to another GPU" : "copying units";
        const Shape &shape = point.shape;
        made += gpu.name + ",gemm " + std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" +
                std::to_string(shape.k) + " fp16," + by + "," + (kernel ? std::to_string(options.blocks) : "") + "," +
                (point.reached_gb_per_s > 0 ? number(point.reached_gb_per_s) : "");
        for (const Times *times : {&point.alone, &point.beside}) made += "," + number(times->median);
        for (const Times *times : {&point.alone, &point.beside}) made += "," + number(times->ninetieth - times->tenth);
        made += "," + source + "\n";
    }
    return made;
}

#ifndef HOST_LOGIC_ONLY  // a test compiles what is above without CUDA

#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <thread>

using Clock = std::chrono::steady_clock;
constexpr size_t CHUNK_BYTES = 1 << 20;  // of one copy
constexpr size_t COPIED_BYTES = size_t(1) << 29;  // that copies go around in: more than a cache holds
constexpr int COPYING_THREADS = 1024;
constexpr int COPIES_AT_ONCE = 8;  // that wait in the engine's queue
constexpr int WARM_UPS = 5;
constexpr unsigned POLL_NS = 1000;

void check(cudaError_t result, const char *what) {
    if (result != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
}

void check(cublasStatus_t result, const char *what) {
    if (result != CUBLAS_STATUS_SUCCESS)
        throw std::runtime_error(std::string(what) + ": cuBLAS error " + std::to_string(result));
}

// Kernels.

__global__ void fill(__half *data, size_t count) {
    const size_t threads = size_t(gridDim.x) * blockDim.x;
    for (size_t place = blockIdx.x * size_t(blockDim.x) + threadIdx.x; place < count; place += threads)
        data[place] = __float2half(((place * 2654435761u >> 8) & 1023) / 1024.0f - 0.5f);
}

__device__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// Copy chunk after chunk, each when it is due, until the host says stop; the blocks take turns. With a negative time
// per chunk none is ever due. Who waits sleeps, and looks at the GPU's own memory: polls of the host's memory alone
// made GEMMs on an H100 take up to six times as long.
__global__ void copy_paced(const uint4 *from, uint4 *to, double chunk_ns, const volatile int *stop,
                           unsigned long long *copied) {
    __shared__ bool over;
    const unsigned long long start = nanoseconds();
    constexpr size_t words = CHUNK_BYTES / sizeof(uint4), chunks = COPIED_BYTES / CHUNK_BYTES;
    for (unsigned long long chunk = blockIdx.x;; chunk += gridDim.x) {
        if (threadIdx.x == 0) {
            while (!(over = *stop) && (chunk_ns < 0 || nanoseconds() - start < chunk * chunk_ns)) __nanosleep(POLL_NS);
        }
        __syncthreads();
        if (over) return;
        const size_t first = chunk % chunks * words;
        for (size_t word = threadIdx.x; word < words; word += blockDim.x) to[first + word] = from[first + word];
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd(copied, static_cast<unsigned long long>(CHUNK_BYTES));
    }
}

// What copies, and what is measured.

struct Memory {  // on a GPU, freed with this
    void *data = nullptr;
    Memory(int gpu, size_t bytes) {
        check(cudaSetDevice(gpu), "a GPU");
        check(cudaMalloc(&data, bytes), "memory");
        check(cudaMemset(data, 0, bytes), "memory");
        check(cudaSetDevice(0), "GPU 0");
    }
    Memory(const Memory &) = delete;
    ~Memory() { cudaFree(data); }
};

struct HostMemory {  // that copy engines reach
    void *data = nullptr;
    explicit HostMemory(size_t bytes) { check(cudaMallocHost(&data, bytes), "the host's memory"); }
    HostMemory(const HostMemory &) = delete;
    ~HostMemory() { cudaFreeHost(data); }
};

struct Stream {
    cudaStream_t stream;
    Stream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream"); }
    Stream(const Stream &) = delete;
    ~Stream() { cudaStreamDestroy(stream); }
};

class Copier {
public:
    virtual ~Copier() = default;
    virtual void start(double gb_per_s) = 0;
    virtual double stop() = 0;  // ends the copies; returns the GB/s that they reached
};

class Engine : public Copier {
public:
    Engine(char *from, char *to) : from_(from), to_(to) {
        for (auto &event : done_) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
    }
    ~Engine() override {
        for (auto event : done_) cudaEventDestroy(event);
    }
    void start(double gb_per_s) override {
        over_ = false;
        problem_.clear();
        thread_ = std::thread([this, gb_per_s] {
            try {
                copy(gb_per_s);
            } catch (const std::exception &error) {
                problem_ = error.what();
            }
        });
    }
    double stop() override {
        over_ = true;
        thread_.join();
        if (!problem_.empty()) throw std::runtime_error(problem_);
        return reached_;
    }

private:
    void copy(double gb_per_s) {
        check(cudaSetDevice(0), "GPU 0");
        const auto start = Clock::now();
        const std::chrono::duration<double, std::nano> chunk_ns(gb_per_s > 0 ? CHUNK_BYTES / gb_per_s : 0);
        size_t chunk = 0;
        for (; !over_; ++chunk) {
            while (!over_ && Clock::now() - start < chunk * chunk_ns) {}
            if (chunk >= COPIES_AT_ONCE) check(cudaEventSynchronize(done_[chunk % COPIES_AT_ONCE]), "a copy");
            const size_t at = chunk * CHUNK_BYTES % COPIED_BYTES;
            check(cudaMemcpyAsync(to_ + at, from_ + at, CHUNK_BYTES, cudaMemcpyDefault, stream_.stream), "a copy");
            check(cudaEventRecord(done_[chunk % COPIES_AT_ONCE], stream_.stream), "a copy");
        }
        check(cudaStreamSynchronize(stream_.stream), "copies");
        reached_ = chunk * CHUNK_BYTES / std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    }

    char *from_, *to_;
    Stream stream_;
    cudaEvent_t done_[COPIES_AT_ONCE];
    std::atomic<bool> over_{false};
    std::thread thread_;
    std::string problem_;
    double reached_ = 0;
};

class Kernel : public Copier {
public:
    Kernel(char *from, char *to, int blocks) : from_(from), to_(to), blocks_(blocks) {}
    void start(double gb_per_s) override {
        check(cudaMemsetAsync(copied_.data, 0, sizeof(unsigned long long), stream_.stream), "a counter");
        check(cudaMemsetAsync(stop_.data, 0, sizeof(int), stream_.stream), "a flag");
        check(cudaStreamSynchronize(stream_.stream), "a counter");
        start_ = Clock::now();
        copy_paced<<<blocks_, COPYING_THREADS, 0, stream_.stream>>>(
            reinterpret_cast<uint4 *>(from_), reinterpret_cast<uint4 *>(to_),
            gb_per_s > 0 ? CHUNK_BYTES / gb_per_s : gb_per_s == HOLDS_ONLY ? -1.0 : 0.0,
            static_cast<const int *>(stop_.data), static_cast<unsigned long long *>(copied_.data));
        check(cudaGetLastError(), "the copying kernel");
    }
    double stop() override {
        check(cudaMemsetAsync(stop_.data, 1, sizeof(int), telling_.stream), "a flag");
        check(cudaStreamSynchronize(stream_.stream), "the copying kernel");
        const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start_).count();
        unsigned long long bytes = 0;
        check(cudaMemcpy(&bytes, copied_.data, sizeof bytes, cudaMemcpyDeviceToHost), "a counter");
        return bytes / ns;
    }

private:
    char *from_, *to_;
    int blocks_;
    Stream stream_, telling_;
    Memory copied_{0, sizeof(unsigned long long)}, stop_{0, sizeof(int)};
    Clock::time_point start_;
};

class Gemm {  // half precision, sums in single
public:
    Gemm(cublasHandle_t handle, Shape shape) : handle_(handle), shape_(shape) {
        for (auto [memory, count] : {std::pair(&a_, size_t(shape.m) * shape.k), {&b_, size_t(shape.k) * shape.n}})
            fill<<<1024, 256>>>(static_cast<__half *>(memory->data), count);
        check(cudaDeviceSynchronize(), "operands");
    }
    Times measure(int repeats) {
        std::vector<double> samples;
        cudaEvent_t before, after;
        check(cudaEventCreate(&before), "an event");
        check(cudaEventCreate(&after), "an event");
        for (int turn = -WARM_UPS; turn < repeats; ++turn) {
            check(cudaEventRecord(before, stream_.stream), "an event");
            multiply();
            check(cudaEventRecord(after, stream_.stream), "an event");
            check(cudaEventSynchronize(after), "the GEMM");
            float ms = 0;
            check(cudaEventElapsedTime(&ms, before, after), "the GEMM");
            if (turn >= 0) samples.push_back(1e3 * ms);
        }
        cudaEventDestroy(before);
        cudaEventDestroy(after);
        return times_of(samples);
    }

private:
    void multiply() {
        const float one = 1, zero = 0;
        check(cublasSetStream(handle_, stream_.stream), "the GEMM");
        check(cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, shape_.m, shape_.n, shape_.k, &one, a_.data, CUDA_R_16F,
                           shape_.m, b_.data, CUDA_R_16F, shape_.k, &zero, c_.data, CUDA_R_16F, shape_.m,
                           CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "the GEMM");
    }

    cublasHandle_t handle_;
    Shape shape_;
    Stream stream_;
    Memory a_{0, size_t(shape_.m) * shape_.k * 2}, b_{0, size_t(shape_.k) * shape_.n * 2},
        c_{0, size_t(shape_.m) * shape_.n * 2};
};

Gpu describe() {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0), "GPU 0");
    Gpu gpu{properties.name, "", 0, 0};
    check(cudaDriverGetVersion(&gpu.driver), "the driver");
    check(cudaRuntimeGetVersion(&gpu.runtime), "the runtime");
    const std::time_t now = std::time(nullptr);
    char date[16];
    std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
    gpu.date = date;
    return gpu;
}

std::vector<Point> measure(const Options &options) {
    if (options.to) {
        check(cudaSetDevice(0), "GPU 0");
        check(cudaDeviceEnablePeerAccess(options.to, 0), "--to");
    }
    Memory from(0, COPIED_BYTES), to(options.to, COPIED_BYTES);
    HostMemory host(options.to ? 1 : COPIED_BYTES);
    cublasHandle_t handle;
    check(cublasCreate(&handle), "cuBLAS");
    std::vector<Point> points;
    for (const Shape &shape : options.shapes) {
        Gemm gemm(handle, shape);
        gemm.measure(1);  // loads what cannot be loaded beside a kernel that waits
        for (const std::string &name : options.copiers) {
            auto *source = static_cast<char *>(from.data), *target = static_cast<char *>(to.data);
            std::unique_ptr<Copier> copier;
            if (name == "engine")
                copier = std::make_unique<Engine>(source, options.to ? target : static_cast<char *>(host.data));
            else
                copier = std::make_unique<Kernel>(source, target, options.blocks);
            for (double rate : options.rates) {
                if (name == "engine" && rate == HOLDS_ONLY) continue;
                const Times alone = gemm.measure(options.repeats);  // each time: power moves the clock
                copier->start(rate);
                Times beside{};
                try {
                    beside = gemm.measure(options.repeats);
                } catch (...) {
                    copier->stop();
                    throw;
                }
                points.push_back({shape, name, rate, copier->stop(), alone, beside});
                std::fprintf(stderr, "%dx%dx%d, %s, %.1f GB/s: %.1f us, alone %.1f\n", shape.m, shape.n, shape.k,
                             name.c_str(), points.back().reached_gb_per_s, beside.median, alone.median);
            }
        }
    }
    check(cublasDestroy(handle), "cuBLAS");
    return points;
}

int main(int count, char **words) {
    try {
        const Options options = options_of({words + 1, words + count});
        FILE *out = options.out.empty() ? stdout : std::fopen(options.out.c_str(), "w");
        if (!out) throw std::invalid_argument("--out " + options.out + ": " + std::strerror(errno));
        std::fputs(csv_of(describe(), options, measure(options)).c_str(), out);
        return out == stdout || std::fclose(out) == 0 ? 0 : 1;
    } catch (const std::invalid_argument &error) {
        std::fprintf(stderr, "measure_contention: error: %s\n", error.what());
        return 2;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "measure_contention: error: %s\n", error.what());
        return 1;
    }
}

#endif
