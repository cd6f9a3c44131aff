//! The table, shortly: every seed, a few thousand inputs made from them with a fixed start, and their growth.

use super::*;

/// How many bytes of input each target is fed with, in inputs that are mostly short.
const BYTES: usize = 300_000;
/// No target gets more inputs.
const INPUTS: u64 = 3_000;

fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).unwrap()
}

#[test]
fn names_are_unique_and_every_target_has_seeds() {
    let names: std::collections::BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names.len(), TARGETS.len());
    assert!(TARGETS.iter().all(|target| !(target.seeds)().is_empty()));
}

#[test]
fn no_input_that_is_nearly_right_troubles_a_decoder() {
    for target in TARGETS {
        let mutator = Mutator::new(target);
        target.run(b"");
        (target.seeds)().iter().for_each(|seed| target.run(seed));
        let mut fed = 0;
        for number in 0..INPUTS {
            let input = mutator.input(&mut Random::new(number));
            fed += input.len();
            if fed > BYTES {
                break;
            }
            target.run(&input);
        }
    }
}

#[test]
fn the_time_of_every_decoder_grows_like_its_input() {
    for target in TARGETS {
        (target.seeds)().iter().for_each(|seed| growth::check(target, seed));
    }
}

/// A decoder that compares every byte with every other, and keeps each four times.
const GREEDY: Target = Target {
    name: "greedy",
    feed: |input| {
        let same = input.iter().map(|byte| input.iter().filter(|other| *other == byte).count());
        assert!(same.sum::<usize>() >= input.len());
        assert_eq!(input.repeat(4).len(), 4 * input.len());
    },
    seeds: || vec![b"ab".to_vec()],
    words: &[],
    memory: Memory { per_byte: 3, fixed: 0 },
    grow: |piece, copies| piece.repeat(copies),
};

#[test]
fn a_decoder_that_takes_too_much_is_found() {
    let is_caught = |check: fn()| std::panic::catch_unwind(check).is_err();
    assert!(is_caught(|| GREEDY.run(b"abcd")), "memory");
    assert!(is_caught(|| growth::check(&GREEDY, b"abcdefgh")), "time");
    let same = Target { grow: |piece, _| piece.to_vec(), ..GREEDY };
    growth::check(&same, b"what does not grow has an end");
}

#[test]
fn the_same_start_makes_the_same_inputs_and_another_makes_others() {
    let mutator = Mutator::new(target("mountinfo"));
    let made = |start: u64| -> Vec<Vec<u8>> {
        let mut random = Random::new(start);
        (0..50).map(|_| mutator.input(&mut random)).collect()
    };
    assert_eq!(made(1), made(1));
    assert_ne!(made(1), made(2));
}
