//! A bound on the speed of a sequence of instructions: its longest dependency chain, and its length over the
//! issue width (N-87).
//!
//! A kernel, such as the inner loop of a hash, is a list of operations, each of which needs results of earlier
//! ones and takes a cycle. No schedule is shorter than the longest chain, or than the number of operations over
//! the issue width. A list schedule, longest remaining chain first, shows how close to both one can get, as an
//! assembler programmer does.
//!
//! ```
//! use lastmeter_repro::machines::dependency::Kernel;
//! let mut kernel = Kernel::default();
//! let sum = kernel.op(&[]); // x = a + b
//! let other = kernel.op(&[]); // y = c + d
//! kernel.op(&[sum, other]); // x + y
//! assert_eq!((kernel.len(), kernel.critical_path()), (3, 2));
//! assert_eq!((kernel.bound(1), kernel.bound(2)), (3, 2));
//! assert_eq!(kernel.schedule(2), 2);
//! ```
//!
//! Source: Touch, "Performance Analysis of MD5", SIGCOMM 1995, does this for MD5; the algorithm is in RFC 1321.
//! Deviation: every operation takes one cycle; loads, loop overhead and register spills cost nothing, so the
//! bound remains a bound, for the forms of the kernel's functions below, which have the fewest instructions.

/// Index of an operation in its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpId(usize);

/// Operations, each after those it depends on.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    needs: Vec<Vec<usize>>,
    /// The longest chain that ends with each operation, itself included.
    depths: Vec<u64>,
}

impl Kernel {
    /// Adds an operation that depends on these results.
    pub fn op(&mut self, needs: &[OpId]) -> OpId {
        let depth = needs.iter().map(|&OpId(at)| self.depths[at]).max().unwrap_or(0) + 1;
        self.needs.push(needs.iter().map(|&OpId(at)| at).collect());
        self.depths.push(depth);
        OpId(self.needs.len() - 1)
    }

    /// Number of operations.
    pub fn len(&self) -> u64 {
        self.needs.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    /// Cycles of the longest dependency chain.
    pub fn critical_path(&self) -> u64 {
        self.depths.iter().copied().max().unwrap_or(0)
    }

    /// A lower bound on the cycles of any schedule with `width` operations per cycle.
    pub fn bound(&self, width: u64) -> u64 {
        self.critical_path().max(self.len().div_ceil(width.max(1)))
    }

    /// Cycles of a list schedule: of the ready operations, the one with the longest remaining chain goes first.
    pub fn schedule(&self, width: u64) -> u64 {
        let count = self.needs.len();
        let mut remaining = vec![1_u64; count];
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (at, needs) in self.needs.iter().enumerate() {
            needs.iter().for_each(|&need| users[need].push(at));
        }
        for at in (0..count).rev() {
            let longest = users[at].iter().map(|&user| remaining[user]).max().unwrap_or(0);
            remaining[at] += longest;
        }
        let mut missing: Vec<usize> = self.needs.iter().map(Vec::len).collect();
        let mut ready: Vec<usize> = (0..count).filter(|&at| missing[at] == 0).collect();
        let (mut cycles, mut done) = (0, 0);
        while done < count {
            ready.sort_by_key(|&at| (remaining[at], count - at));
            let issued = ready.split_off(ready.len().saturating_sub(width.max(1) as usize));
            cycles += 1;
            done += issued.len();
            for user in issued.iter().flat_map(|&at| &users[at]) {
                missing[*user] -= 1;
                if missing[*user] == 0 {
                    ready.push(*user);
                }
            }
        }
        cycles
    }
}

/// A processor's instructions for MD5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instructions {
    /// Whether it rotates a word in one instruction; else two shifts and an or.
    pub rotates: bool,
    /// Instructions to make a constant of 32 bits, besides the addition: 0 if it fits into it.
    pub constant: u64,
    /// Whether words have another byte order than the machine's, and are swapped: four shifts, two masks and three
    /// ors each.
    pub turns: bool,
}

/// MD5 of one block of 64 bytes: 64 steps `a = b + rotl(a + F(b, c, d) + X[k] + T[i], s)` (RFC 1321, §3.4).
pub fn md5(instructions: Instructions) -> Kernel {
    let Instructions { rotates, constant, turns } = instructions;
    let mut kernel = Kernel::default();
    let words: Vec<Option<OpId>> = (0..16).map(|_| turns.then(|| turned(&mut kernel))).collect();
    // The newest result first: b, c, d, a of the step.
    let mut state: [Option<OpId>; 4] = [None; 4];
    for step in 0..64 {
        let [b, c, d, a] = state;
        let on = |needs: &[Option<OpId>]| needs.iter().copied().flatten().collect::<Vec<_>>();
        let function = match step / 16 {
            // ((c ^ d) & b) ^ d, and ((b ^ c) & d) ^ c.
            0 => {
                let early = kernel.op(&on(&[c, d]));
                let chosen = kernel.op(&on(&[Some(early), b]));
                kernel.op(&on(&[Some(chosen), d]))
            }
            1 => {
                let early = kernel.op(&on(&[b, c]));
                let chosen = kernel.op(&on(&[Some(early), d]));
                kernel.op(&on(&[Some(chosen), c]))
            }
            // b ^ (c ^ d).
            2 => {
                let early = kernel.op(&on(&[c, d]));
                kernel.op(&on(&[Some(early), b]))
            }
            // c ^ (b | !d).
            _ => {
                let early = kernel.op(&on(&[d]));
                let either = kernel.op(&on(&[Some(early), b]));
                kernel.op(&on(&[Some(either), c]))
            }
        };
        let mut sum = kernel.op(&on(&[a, words[word_of(step)]]));
        let made = (0..constant).fold(None, |made, _| Some(kernel.op(&on(&[made]))));
        sum = kernel.op(&on(&[Some(sum), made]));
        sum = kernel.op(&[sum, function]);
        let turned = match rotates {
            true => kernel.op(&[sum]),
            false => {
                let (up, down) = (kernel.op(&[sum]), kernel.op(&[sum]));
                kernel.op(&[up, down])
            }
        };
        let next = kernel.op(&on(&[Some(turned), b]));
        state = [Some(next), b, c, d];
    }
    // Each word of the state is added to its value before the block.
    for word in state.into_iter().flatten() {
        kernel.op(&[word]);
    }
    kernel
}

/// Which word of the block a step uses.
fn word_of(step: usize) -> usize {
    match step / 16 {
        0 => step % 16,
        1 => (1 + 5 * step) % 16,
        2 => (5 + 3 * step) % 16,
        _ => (7 * step) % 16,
    }
}

/// A word with its bytes swapped, by shifts and masks.
fn turned(kernel: &mut Kernel) -> OpId {
    let outer = [kernel.op(&[]), kernel.op(&[])];
    let mut inner = [kernel.op(&[]), kernel.op(&[])];
    inner = inner.map(|shifted| kernel.op(&[shifted]));
    let halves = [outer, inner].map(|[high, low]| kernel.op(&[high, low]));
    kernel.op(&halves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Instructions = Instructions { rotates: true, constant: 0, turns: false };

    #[test]
    fn n_87_the_longest_chain_of_md5_is_that_of_its_formulas() {
        // F, I: two operations after b; G: three, of which the first needs b; H: one. Then an addition, the rotation
        // and an addition. The first step waits for c ^ d as well, and the state is added at the end.
        assert_eq!(md5(PLAIN).len(), 64 * 5 + 48 * 3 + 16 * 2 + 4);
        assert_eq!(md5(PLAIN).critical_path(), 16 * (5 + 6 + 4 + 5) + 2);
        let shifting = Instructions { rotates: false, ..PLAIN };
        assert_eq!(md5(shifting).len() - md5(PLAIN).len(), 64 * 2);
        assert_eq!(md5(Instructions { turns: true, ..PLAIN }).len() - md5(PLAIN).len(), 16 * 9);
    }

    proptest! {
        #[test]
        fn a_schedule_is_never_below_the_bound_and_never_idles_without_need(
            links in prop::collection::vec(prop::collection::vec(0.0..1.0_f64, 0..3), 1..80),
            width in 1_u64..5,
        ) {
            let mut kernel = Kernel::default();
            for (at, needs) in links.iter().enumerate() {
                let need = |share: &f64| OpId((share * at as f64) as usize);
                let needs: Vec<OpId> = needs.iter().map(need).filter(|&OpId(to)| to < at).collect();
                kernel.op(&needs);
            }
            let cycles = kernel.schedule(width);
            prop_assert!(cycles >= kernel.bound(width));
            // Graham 1966: at most the sum of work over width and the longest chain.
            prop_assert!(cycles <= kernel.len().div_ceil(width) + kernel.critical_path());
        }
    }
}
