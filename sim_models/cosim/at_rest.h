// Which instances of modules rest: what at_rest.py writes into Verilator's C++ calls this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace at_rest {

template <std::size_t bytes>
inline bool same(const void* one, const void* other) {
    const auto* a = static_cast<const unsigned char*>(one);
    const auto* b = static_cast<const unsigned char*>(other);
    std::uint64_t different = 0, x, y;
    std::size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        std::memcpy(&x, a + i, 8), std::memcpy(&y, b + i, 8);
        different |= x ^ y;
    }
    if constexpr (bytes % 8 != 0) {
        x = y = 0;
        std::memcpy(&x, a + i, bytes % 8), std::memcpy(&y, b + i, bytes % 8);
        different |= x ^ y;
    }
    return different == 0;
}

using Instances = std::uint64_t;  // a bit each

// Writes an input of an instance, and notes if that changes it.
template <class Variable, class Value>
inline void put(Variable& variable, Value value, Instances& changed, Instances one) {
    if (variable != static_cast<Variable>(value)) {
        variable = static_cast<Variable>(value);
        changed |= one;
    }
}

// The instances of a module.
template <class Module>
struct Rests {
    using Type = typename Module::Type;

    static constexpr Instances all = ~Instances{0} >> (64 - Module::instances);
    static constexpr std::uint16_t shortest_patience = 3, longest_patience = 48;

    Instances awake = all;    // those that are evaluated
    Instances changed = 0;    // those of which an input changed in this evaluation: they are evaluated, too
    Instances evaluated = all;    // in this evaluation, so far
    Instances evaluated_before = all;
    Instances looking = 0;    // those whose variables this evaluation has left as they were, so far
    bool watched = false;     // whether any were asleep or looking after the last evaluation
    typename Module::Shared shared;  // variables of others that the functions read, as they were last seen
    typename Module::Variables variables[Module::instances];  // before this evaluation, of those looking
    std::uint64_t passed[Module::instances] = {};    // places that left the variables as they were
    std::uint16_t calm[Module::instances] = {};      // evaluations without a change of inputs
    std::uint16_t patience[Module::instances] = {};  // calm evaluations before the next look at the variables

    // Before the functions at one or several places.
    template <class Symbols>
    inline void look_around(const Symbols& symbols) {
        if (watched && !Module::same_shared(symbols, shared)) wake();
    }

    // Which of these instances are to be evaluated.
    inline Instances to_evaluate(Instances these) {
        these &= awake | changed;
        evaluated |= these;
        return these;
    }

    // Whether a variable of an instance may be another than when it was last looked at, an evaluation ago.
    inline bool stirred(unsigned n) const { return (evaluated | evaluated_before | changed) >> n & 1; }

    // After the functions at a place.
    inline void look(Type& one, unsigned n, std::uint64_t place) {
        if ((looking & ~changed) >> n & 1) compare(one, n, place);
    }

    // After an evaluation with a clock edge.
    template <class Symbols>
    inline void end(Symbols& symbols) {
        awake |= changed;
        looking &= ~changed;
        for (Instances left = awake; left != 0; left &= left - 1) {
            const unsigned n = __builtin_ctzll(left);
            const Instances bit = Instances{1} << n;
            if (changed & bit) {
                calm[n] = 0;
                patience[n] = shortest_patience;
            } else if ((looking & bit) && passed[n] == Module::places[n]) {
                awake ^= bit;
                looking ^= bit;
            } else if (++calm[n] >= patience[n]) {
                start_looking(Module::instance(symbols, n), n);
            } else {
                looking &= ~bit;
            }
        }
        evaluated_before = evaluated | changed;
        evaluated = changed = 0;
        const bool any = awake != all || looking != 0;
        if (any && !watched) Module::keep_shared(symbols, shared);
        watched = any;
    }

    void wake() {
        awake = all;
        looking = 0;
        watched = false;
    }

    int asleep() const { return __builtin_popcountll(all & ~awake); }

  private:
    void compare(Type& one, unsigned n, std::uint64_t place) {
        if (!one.at_rest_written && Module::same_Variables(one, variables[n])) {
            passed[n] |= place;
        } else {
            looking &= ~(Instances{1} << n);
            if (patience[n] < longest_patience) patience[n] += patience[n] + 1;
        }
    }

    void start_looking(Type& one, unsigned n) {
        calm[n] = 0;
        passed[n] = 0;
        looking |= Instances{1} << n;
        one.at_rest_written = false;
        Module::keep_Variables(one, variables[n]);
    }
};

}  // namespace at_rest
