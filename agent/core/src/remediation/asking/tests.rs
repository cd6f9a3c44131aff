//! What follows from each answer, and when it is enough.

use alloc::vec;

use super::*;
use crate::volume::HookWay;

const MOST: u32 = 3;
const FAULT: Reason = Reason::IoError;

fn at(seconds: u64) -> Monotonic {
    Monotonic::from_nanos(seconds * 1_000_000_000)
}

fn hook() -> Hook {
    Hook { how: HookWay::Exec(vec!["/etc/mountie/ask".into()]), timeout: Duration::from_secs(10) }
}

fn report(id: u64, answer: Answer, text: &str) -> AnswerReport {
    let took = Duration::from_millis(5);
    AnswerReport { id: QuestionId(id), volume: VolumeId::new("v"), answer, text: text.into(), took }
}

fn asked(answer: Answer, now: Monotonic) -> (Asking, Consequence) {
    let mut asking = Asking::default();
    assert_eq!(asking.stand(now, FAULT), Standing::Ask);
    asking.ask((QuestionId(1), FAULT), &hook(), now);
    assert_eq!(asking.stand(now, FAULT), Standing::Out);
    assert!(asking.is_out(QuestionId(1)) && !asking.is_out(QuestionId(2)));
    let consequence = asking.answer(&report(1, answer, "because"), Some(FAULT), MOST, now);
    (asking, consequence)
}

#[test]
fn leave_to_repair_holds_for_one_attempt_and_a_while() {
    let (mut asking, consequence) = asked(Answer::Remount, at(100));
    assert_eq!(consequence, Consequence { message: "the hook says remount: because".into(), look: false });
    assert_eq!(asking.stand(at(159), FAULT), Standing::Clear);
    assert_eq!(asking.stand(at(160), FAULT), Standing::Ask);
    asking.used();
    assert_eq!(asking.stand(at(101), FAULT), Standing::Ask);
    assert!(asking.is_at_rest());
}

#[test]
fn leave_to_repair_one_fault_is_none_for_another() {
    let (asking, _) = asked(Answer::Remount, at(100));
    assert_eq!(asking.stand(at(101), FAULT), Standing::Clear);
    assert_eq!(asking.stand(at(101), Reason::Readonly), Standing::Ask);
}

#[test]
fn an_answer_about_a_fault_that_became_another_counts_for_nothing() {
    for answer in [Answer::Remount, Answer::Escalate, Answer::Wait(Duration::from_secs(9)), Answer::Resolved]
    {
        let mut asking = Asking::default();
        asking.ask((QuestionId(1), FAULT), &hook(), at(100));
        let other = Some(Reason::Readonly);
        let consequence = asking.answer(&report(1, answer.clone(), ""), other, MOST, at(101));
        assert!(consequence.message.contains("another fault"), "{consequence:?}");
        assert!(asking.is_at_rest(), "{answer:?}: {asking:?}");
        assert!(asking.last().is_some_and(|last| last.answered.is_some()), "it is still shown");
    }
}

#[test]
fn a_wait_is_kept_within_bounds() {
    for (wanted, kept) in [(0, 1), (30, 30), (3600, 3600), (u64::MAX, 3600)] {
        let (asking, _) = asked(Answer::Wait(Duration::from_secs(wanted)), at(100));
        assert_eq!(asking.stand(at(100), FAULT), Standing::Waits(at(100 + kept)));
        assert_eq!(asking.next_change(), Some(at(100 + kept)));
        assert_eq!(asking.stand(at(100 + kept), FAULT), Standing::Ask);
    }
}

#[test]
fn what_is_said_to_be_in_order_is_looked_at_and_not_repaired() {
    let (asking, consequence) = asked(Answer::Resolved, at(100));
    assert!(consequence.look);
    assert_eq!(asking.stand(at(100), FAULT), Standing::Waits(at(105)));
}

#[test]
fn escalation_is_the_end_until_it_is_forgotten() {
    let (mut asking, _) = asked(Answer::Escalate, at(100));
    assert_eq!(asking.stand(at(100_000), FAULT), Standing::GivenUp);
    assert_eq!(asking.given_up(), Some("the hook says that a person must act: because"));
    asking.forget();
    assert_eq!(asking.stand(at(100_000), FAULT), Standing::Ask);
    assert_eq!(asking.last().unwrap().answered.as_ref().unwrap().1, Answer::Escalate, "it is still shown");
}

#[test]
fn everything_that_puts_off_is_counted_together_and_ends() {
    let answers = [
        Answer::Wait(Duration::from_secs(2)),
        Answer::Nothing(NoAnswer::TimedOut),
        Answer::Resolved,
        Answer::Nothing(NoAnswer::Bad),
    ];
    let (mut asking, mut now) = (Asking::default(), at(100));
    for (id, answer) in (1..).zip(answers) {
        assert_eq!(asking.stand(now, FAULT), Standing::Ask);
        asking.ask((QuestionId(id), FAULT), &hook(), now);
        asking.answer(&report(id, answer, ""), Some(FAULT), MOST, now);
        if let Standing::Waits(until) = asking.stand(now, FAULT) {
            now = until;
        }
    }
    assert_eq!(asking.stand(now, FAULT), Standing::GivenUp);
    let why = asking.given_up().unwrap();
    assert!(why.contains("cannot be understood") && why.contains("3 times"), "{why}");
}

#[test]
fn leave_to_repair_ends_the_count() {
    let mut asking = Asking::default();
    for id in 0..20 {
        asking.ask((QuestionId(id), FAULT), &hook(), at(id));
        let answer = if id % 3 == 2 { Answer::Remount } else { Answer::Wait(Duration::ZERO) };
        asking.answer(&report(id, answer, ""), Some(FAULT), MOST, at(id));
        asking.used();
        assert_eq!(asking.given_up(), None);
    }
}

#[test]
fn without_an_answer_the_pauses_grow_to_a_limit() {
    let (mut asking, mut now, mut last) = (Asking::default(), at(100), Duration::ZERO);
    for id in 0..12 {
        asking.ask((QuestionId(id), FAULT), &hook(), now);
        asking.answer(&report(id, Answer::Nothing(NoAnswer::Unreachable), ""), Some(FAULT), u32::MAX, now);
        let Standing::Waits(until) = asking.stand(now, FAULT) else { panic!() };
        let pause = until.since(now);
        assert!(pause > last || pause > Duration::from_secs(269), "{pause:?} after {last:?}");
        assert!(pause <= Duration::from_secs(330));
        (now, last) = (until, pause);
    }
}

#[test]
fn who_never_comes_back_is_lost_after_the_hooks_time_and_a_little_more() {
    let mut asking = Asking::default();
    asking.ask((QuestionId(7), FAULT), &hook(), at(100));
    assert_eq!((asking.lost(at(119)), asking.lost(at(120))), (None, Some(QuestionId(7))));
    assert_eq!(asking.next_change(), Some(at(120)));
    asking.forget();
    assert_eq!((asking.lost(at(500)), asking.last()), (None, None));
}

#[test]
fn a_hook_is_named_without_what_may_be_a_key() {
    use crate::volume::HookAddress;
    let post = |address| name_of(&Hook { how: HookWay::Post(address), timeout: Duration::ZERO });
    assert_eq!(name_of(&hook()), "/etc/mountie/ask");
    let http = HookAddress::Http { authority: "h:80".into(), path: "/ask?key=x".into() };
    assert_eq!(post(http), "http://h:80/ask");
    assert_eq!(post(HookAddress::Unix("/run/ask.sock".into())), "unix:/run/ask.sock");
}
