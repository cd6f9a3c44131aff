//! Some tasks at a time; what came of each is taken by one thread, in the order in which they end.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use anyhow::Result;

/// Runs every task with at most `jobs` at a time. An error of `take` is returned when all have ended.
pub(crate) fn run<T: Copy + Sync + Send, R: Send>(
    jobs: usize,
    tasks: &[T],
    work: impl Fn(T) -> R + Sync,
    mut take: impl FnMut(T, R) -> Result<()>,
) -> Result<()> {
    let left = Mutex::new(tasks.iter());
    let next = || left.lock().ok().and_then(|mut left| left.next().copied());
    let (sender, receiver) = channel();
    let mut first_error = Ok(());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1).min(tasks.len()) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                while let Some(task) = next() {
                    let done = work(task);
                    if sender.send((task, done)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (task, done) in receiver {
            let taken = take(task, done);
            if first_error.is_ok() {
                first_error = taken;
            }
        }
    });
    first_error
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use anyhow::bail;

    use super::*;

    #[test]
    fn as_many_tasks_as_asked_for_run_at_a_time() {
        // Each waits for another: with one at a time this would not end.
        let both = Barrier::new(2);
        let mut taken = Vec::new();
        let work = |task: u32| {
            both.wait();
            task * 2
        };
        run(2, &[1, 2, 3, 4], work, |task, done| {
            taken.push((task, done));
            Ok(())
        })
        .unwrap();
        taken.sort_unstable();
        assert_eq!(taken, [(1, 2), (2, 4), (3, 6), (4, 8)]);
    }

    #[test]
    fn an_error_does_not_keep_others_from_running() {
        let mut taken = 0;
        let done = run(
            1,
            &[1, 2, 3],
            |task| task,
            |task, _| {
                taken += 1;
                if task == 1 { bail!("bad") } else { Ok(()) }
            },
        );
        assert_eq!((done.unwrap_err().to_string().as_str(), taken), ("bad", 3));
        assert!(run(2, &[], |task: u32| task, |_, _| Ok(())).is_ok());
    }
}
