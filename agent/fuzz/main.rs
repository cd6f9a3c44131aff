//! Feeds one target of [`agent::fuzz`] with what libFuzzer makes: it keeps what reaches new code and goes on from
//! there. Started by `cargo xtask fuzz`, which names the target and the folder in the environment.
#![no_main]

use agent::fuzz::Campaign;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use std::sync::OnceLock;

static CAMPAIGN: OnceLock<Campaign> = OnceLock::new();

fn campaign() -> &'static Campaign {
    CAMPAIGN.get_or_init(Campaign::from_environment)
}

fuzz_target!(init: campaign().prepare(), |input: &[u8]| campaign().feed(input));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    // Half of the time what knows the format, half of the time what libFuzzer has learnt.
    if seed.is_multiple_of(2) {
        campaign().mutate(data, size, max_size, seed)
    } else {
        libfuzzer_sys::fuzzer_mutate(data, size, max_size)
    }
});
