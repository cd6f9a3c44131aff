//! Every decoder of the agent under hostile bytes: one table of targets, and what must hold for each input.
//!
//! No input makes a decoder panic, take more memory than a multiple of the input, or take time that grows faster
//! than the input does. Memory is counted by the allocator, and time is compared between lengths of one kind of
//! input, never with a clock's absolute reading.
//!
//! The same table is run in two ways: shortly, with fixed seeds, by the unit tests; for as long as wanted, guided
//! by the code that inputs reach, by `cargo xtask fuzz`.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

mod growth;
mod mutate;
mod seeds;
mod tables;
mod targets;

pub use targets::TARGETS;

use mutate::{Mutator, Random};

/// Which target the program feeds.
const TARGET: &str = "MOUNTIE_TEST_FUZZ_TARGET";
/// Where it keeps the inputs it starts from, and the words.
const FOLDER: &str = "MOUNTIE_TEST_FUZZ_FOLDER";
/// One input in so many is also looked at for its growth.
const GROWTH_EVERY: u64 = 1 << 13;

/// One decoder, with all that is needed to torture it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, for people and on the command line.
    pub name: &'static str,
    /// Decodes, and fails when something that must hold does not.
    feed: fn(&[u8]),
    /// Inputs that are right: what is changed a little finds more than what is random.
    seeds: fn() -> Vec<Vec<u8>>,
    /// Words that the format is made of.
    words: &'static [&'static [u8]],
    /// The most memory at a time, for each byte of input and at all.
    memory: Memory,
    /// A longer input of the same kind: so many copies of what one is made of.
    grow: fn(&[u8], usize) -> Vec<u8>,
}

/// What a decoder may hold at a time.
#[derive(Clone, Copy, Debug)]
struct Memory {
    per_byte: u64,
    fixed: u64,
}

impl Target {
    /// Runs the decoder over one input, and counts what it holds.
    ///
    /// # Panics
    /// When the decoder does, or when it takes more memory than the table allows.
    pub fn run(&self, input: &[u8]) {
        let taken = allocation_counter::measure(|| (self.feed)(input)).bytes_max;
        let length = u64::try_from(input.len()).unwrap_or(u64::MAX);
        let allowed = self.memory.per_byte.saturating_mul(length).saturating_add(self.memory.fixed);
        assert!(
            taken <= allowed,
            "{}: {taken} bytes of memory for an input of {length}, allowed are {allowed}",
            self.name
        );
    }
}

/// One run of the program over one target.
#[derive(Debug)]
pub struct Campaign {
    target: &'static Target,
    mutator: Mutator,
    folder: PathBuf,
    fed: AtomicU64,
}

impl Campaign {
    /// The target and the folder that the environment names. Ends the program when it names none.
    #[must_use]
    pub fn from_environment() -> Self {
        let name = std::env::var(TARGET).unwrap_or_default();
        let folder = std::env::var_os(FOLDER).map(PathBuf::from).unwrap_or_default();
        let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
            let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            eprintln!("{TARGET} must name one of: {}", known.join(" "));
            std::process::exit(64);
        };
        Self { target, mutator: Mutator::new(target), folder, fed: AtomicU64::new(0) }
    }

    /// Writes the inputs to start from, and the words, to where libFuzzer reads them next.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn prepare(&self) {
        let corpus = self.folder.join("corpus");
        let mut written = fs::create_dir_all(&corpus);
        for (number, seed) in (self.target.seeds)().iter().enumerate() {
            written = written.and_then(|()| fs::write(corpus.join(format!("seed-{number}")), seed));
        }
        // A file without any line is refused.
        let lines = self.target.words.iter().map(|word| dictionary_line(word));
        let words: String = std::iter::once("# words of the format\n".to_owned()).chain(lines).collect();
        written = written.and_then(|()| fs::write(self.folder.join("words"), words));
        assert!(written.is_ok(), "cannot write to {}: {written:?}", self.folder.display());
    }

    /// Runs the target over one input, and now and then over much longer ones of its kind.
    ///
    /// # Panics
    /// When something that must hold does not.
    pub fn feed(&self, input: &[u8]) {
        self.target.run(input);
        if self.fed.fetch_add(1, Ordering::Relaxed) % GROWTH_EVERY == GROWTH_EVERY - 1 {
            growth::check(self.target, input);
        }
    }

    /// Changes an input in place, with knowledge of its format; gives its new length.
    pub fn mutate(&self, data: &mut [u8], size: usize, most: usize, seed: u32) -> usize {
        let changed =
            self.mutator.change(data.get(..size).unwrap_or_default(), &mut Random::new(seed.into()));
        let length = changed.len().min(most).min(data.len());
        for (place, byte) in data.iter_mut().zip(changed.iter().take(length)) {
            *place = *byte;
        }
        length
    }
}

/// A word as libFuzzer's dictionaries have it.
fn dictionary_line(word: &[u8]) -> String {
    let bytes: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{bytes}\"\n")
}

#[cfg(test)]
mod tests;
