//! Hooks of both kinds, as they should be and as they should not.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use agent_core::id::{PlanId, QuestionId, VolumeId};
use agent_core::path::BytePath;
use agent_core::remediation::Plan;
use agent_core::volume::Hook;

use super::*;

const EVIDENCE: &[u8] = br#"{"kind":"RepairQuestion"}"#;

fn question(how: HookWay, limit: Duration) -> Question {
    let place = BytePath::from("/mnt/v");
    Question {
        id: QuestionId(7),
        volume: VolumeId::new("v"),
        hook: Hook { how, timeout: limit },
        plan: Plan {
            id: PlanId(1),
            volume: VolumeId::new("v"),
            server: None,
            dead: None,
            reason: None,
            mountpoint: place.clone(),
            stage: place,
            old: None,
            marks: None,
            actions: Vec::new(),
            undo: Vec::new(),
            timeout: Duration::ZERO,
            helper_timeout: Duration::ZERO,
        },
        put_off: 0,
        put_off_at_most: 10,
    }
}

fn ask(how: HookWay, limit: Duration) -> AnswerReport {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Stands for the child that becomes the program.
    let launcher = ["/bin/sh", "-c", r#"shift 3; exec "$@""#, "ask"].map(Into::into).to_vec();
    let exe = "/bin/false".into();
    let asker = Asker::new(Settings { exe, launcher, namespace: None, network: None });
    let report = runtime.block_on(asker.ask(question(how, limit), EVIDENCE.to_vec()));
    runtime.shutdown_background();
    assert_eq!((report.id, report.volume.as_str()), (QuestionId(7), "v"));
    report
}

fn shell(script: &str) -> AnswerReport {
    shell_within(script, Duration::from_secs(120))
}

fn shell_within(script: &str, limit: Duration) -> AnswerReport {
    ask(HookWay::Exec(["sh", "-c", script].map(str::to_owned).to_vec()), limit)
}

#[test]
fn a_program_gets_the_evidence_and_answers() {
    let report = shell(r#"grep -q RepairQuestion && echo '{"answer":"remount","text":"go on"}'"#);
    assert_eq!((report.answer, report.text.as_str()), (Answer::Remount, "go on"));
    let report = shell(r#"echo '{"answer":"wait","seconds":9}'"#);
    assert_eq!(report.answer, Answer::Wait(Duration::from_secs(9)), "it need not read");
}

#[test]
fn a_program_finds_nothing_of_the_agents_environment() {
    let script = r#"test -z "$CARGO_MANIFEST_DIR$HOME" && test "$(pwd)" = / && echo '{"answer":"resolved"}'"#;
    assert_eq!(shell(script).answer, Answer::Resolved);
}

#[test]
fn what_a_program_leaves_behind_does_not_hold_up_its_answer() {
    let report = shell(r#"sleep 600 & echo '{"answer":"resolved","text":"'$!'"}'"#);
    assert_eq!(report.answer, Answer::Resolved);
    let left: i32 = report.text.parse().unwrap();
    let signal = nix::sys::signal::Signal::SIGKILL;
    assert_eq!(nix::sys::signal::kill(nix::unistd::Pid::from_raw(left), signal), Ok(()), "it lives on");
}

#[test]
fn a_program_that_fails_or_says_nonsense_gives_no_answer() {
    let failed = shell("cat >/dev/null; echo 'no such host token=Zx9' >&2; exit 3");
    assert_eq!(failed.answer, Answer::Nothing(NoAnswer::Failed));
    assert!(failed.text.contains("no such host") && !failed.text.contains("Zx9"), "{}", failed.text);
    let bad = shell("echo yes");
    assert_eq!(bad.answer, Answer::Nothing(NoAnswer::Bad));
    let long = shell("yes");
    assert_eq!(long.answer, Answer::Nothing(NoAnswer::Bad));
    assert!(long.text.contains("65536"), "{}", long.text);
    let missing = ask(HookWay::Exec(vec!["/nonexistent/ask".into()]), Duration::from_secs(60));
    assert_eq!(missing.answer, Answer::Nothing(NoAnswer::Unreachable));
    assert!(missing.text.starts_with("/nonexistent/ask: "), "{}", missing.text);
}

#[test]
fn a_program_that_complains_at_length_is_heard_all_the_same() {
    let report = shell(r#"head -c 100000 /dev/zero >&2 && echo '{"answer":"remount"}'"#);
    assert_eq!(report.answer, Answer::Remount, "{}", report.text);
}

#[test]
fn a_program_that_takes_too_long_is_killed_with_all_it_started() {
    let mark = format!("{}.7654", 600_000 + std::process::id());
    let report = shell_within(&format!("sleep {mark} & sleep {mark}"), Duration::from_millis(300));
    assert_eq!(report.answer, Answer::Nothing(NoAnswer::TimedOut));
    let lives = || {
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok()).any(|line| {
            line.starts_with(b"sleep\0") && line.windows(mark.len()).any(|part| part == mark.as_bytes())
        })
    };
    while lives() {
        std::thread::yield_now();
    }
}

/// Answers one request with these bytes, and hands out what was asked.
fn serve(mut stream: impl std::io::Read + std::io::Write, answer: &str) -> String {
    let mut request = Vec::new();
    while !request.ends_with(EVIDENCE) {
        let mut piece = [0; 512];
        let count = stream.read(&mut piece).unwrap();
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&request));
        request.extend_from_slice(&piece[..count]);
    }
    // The other side may have heard enough.
    let _ = stream.write_all(answer.as_bytes());
    String::from_utf8(request).unwrap()
}

fn fine(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn http(answer: String) -> (AnswerReport, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || serve(listener.accept().unwrap().0, &answer));
    let address = HookAddress::Http { authority, path: "/ask?x=1".into() };
    let report = ask(HookWay::Post(address), Duration::from_secs(120));
    (report, server.join().unwrap())
}

#[test]
fn a_listener_gets_the_evidence_and_answers() {
    let (report, request) = http(fine(r#"{"answer":"wait","seconds":5,"text":"a\nb c"}"#));
    assert_eq!(report.answer, Answer::Wait(Duration::from_secs(5)));
    assert_eq!(report.text, "a b c");
    assert!(request.starts_with("POST /ask?x=1 HTTP/1.1\r\n"), "{request}");
    assert!(request.to_ascii_lowercase().contains("content-type: application/json"), "{request}");
}

#[test]
fn a_listener_that_refuses_or_says_too_much_gives_no_answer() {
    let (report, _) = http("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".into());
    assert_eq!(report.answer, Answer::Nothing(NoAnswer::Failed));
    assert!(report.text.contains("503"), "{}", report.text);
    let (report, _) = http("HTTP/1.1 302 Found\r\nlocation: http://h/\r\ncontent-length: 0\r\n\r\n".into());
    assert_eq!(report.answer, Answer::Nothing(NoAnswer::Failed), "nobody is sent elsewhere");
    let (report, _) = http("HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n{".into());
    assert_eq!(report.answer, Answer::Nothing(NoAnswer::Bad), "{}", report.text);
    let (report, _) = http("nonsense\r\n\r\n".into());
    assert_eq!(report.answer, Answer::Nothing(NoAnswer::Failed));
}

#[test]
fn a_listener_that_is_not_there_or_says_nothing_gives_no_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let address = HookAddress::Http { authority, path: "/".into() };
    let silent = ask(HookWay::Post(address), Duration::from_millis(300));
    assert_eq!(silent.answer, Answer::Nothing(NoAnswer::TimedOut));
    // A port that was let go may be another test's by now; nobody listens at this one.
    let nobody = HookAddress::Http { authority: "127.0.0.1:1".into(), path: "/".into() };
    let gone = ask(HookWay::Post(nobody), Duration::from_secs(60));
    assert_eq!(gone.answer, Answer::Nothing(NoAnswer::Unreachable));
}

#[test]
fn a_socket_on_this_node_will_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ask.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server =
        std::thread::spawn(move || serve(listener.accept().unwrap().0, &fine(r#"{"answer":"escalate"}"#)));
    let address = HookAddress::Unix(path.to_string_lossy().into_owned());
    let report = ask(HookWay::Post(address), Duration::from_secs(120));
    assert_eq!(report.answer, Answer::Escalate);
    assert!(server.join().unwrap().starts_with("POST / HTTP/1.1"));
}

#[test]
fn what_people_are_shown_is_one_short_line_without_secrets() {
    assert_eq!(shown(" a\nb\tpassword=Zx9 "), "a b password=***");
    assert_eq!(shown(&"é".repeat(400)).chars().count(), 301);
}
