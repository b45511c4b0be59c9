//! A progress bar on a terminal, and Ctrl-C: the first stops the work and keeps its results so far, the
//! second ends the program.

use crate::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lastmeter_engine::Control;
use lastmeter_lab::run::Watch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// How often the bar is drawn.
const EVERY: Duration = Duration::from_millis(100);

/// Runs `work` with a bar that shows the progress in `watch`; Ctrl-C stops the work.
pub(crate) fn shown<T>(watch: &Arc<Watch>, work: impl FnOnce() -> T) -> T {
    let look = |bar: &ProgressBar| {
        let (first, done, runs) = watch.progress();
        if runs == 0 {
            bar.set_message("running");
            bar.set_position((first * STEPS as f64) as u64);
        } else {
            bar.set_message(format!("what if: {done} of {runs}"));
            bar.set_position(done as u64 * STEPS / runs as u64);
        }
    };
    drawn(watch, bar(STEPS), look, work)
}

/// A bar of so many steps on standard error; it draws nothing unless that is a terminal that can move its cursor, and
/// the user wants to see progress.
pub(crate) fn bar(steps: u64) -> ProgressBar {
    let target = match output::is_quiet() || output::is_dumb() {
        true => ProgressDrawTarget::hidden(),
        false => ProgressDrawTarget::stderr(),
    };
    ProgressBar::with_draw_target(Some(steps), target)
}

/// Runs `work` with a bar that `look` updates; Ctrl-C stops the work.
pub(crate) fn drawn<T>(
    watch: &Arc<Watch>,
    bar: ProgressBar,
    look: impl Fn(&ProgressBar) + Sync,
    work: impl FnOnce() -> T,
) -> T {
    stop_on_interrupt(watch.control.clone());
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let handle = scope.spawn(|| draw(&bar, &look, &finished));
        let _finish = Finish { finished: &finished, drawing: handle.thread() };
        work()
    })
}

/// The first Ctrl-C stops what looks at `control`, the second ends the program.
pub(crate) fn stop_on_interrupt(control: Arc<Control>) {
    // Only one handler can be set; commands that run several things in sequence share it.
    let _ = ctrlc::set_handler(move || {
        if control.stopped() {
            std::process::exit(130);
        }
        control.stop();
    });
}

/// Ends the drawing when the work has ended, even by a panic: the scope joins its threads before it
/// propagates a panic.
struct Finish<'a> {
    finished: &'a AtomicBool,
    drawing: &'a Thread,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.finished.store(true, Ordering::Relaxed);
        self.drawing.unpark();
    }
}

/// The steps of a bar that shows a share.
const STEPS: u64 = 1000;

fn draw(bar: &ProgressBar, look: &(dyn Fn(&ProgressBar) + Sync), finished: &AtomicBool) {
    let style = ProgressStyle::with_template("{msg:20} {wide_bar} {percent:>3} %  {eta:>4} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    while !finished.load(Ordering::Relaxed) {
        look(bar);
        std::thread::park_timeout(EVERY);
    }
    bar.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::Threads;
    use lastmeter_lab::Parallel;
    use std::sync::mpsc;

    #[test]
    fn a_panic_in_a_model_ends_the_command() {
        let (done, ended) = mpsc::channel();
        let command = std::thread::spawn(move || {
            // Dropped by the panic, which is what the test waits for.
            let _done: mpsc::Sender<()> = done;
            let threads = Threads::new(Some(2)).expect("threads");
            shown(&Arc::default(), || {
                let mut fault = || panic!("a fault in a model");
                let mut other = || ();
                threads.run(&mut [&mut fault, &mut other]);
            });
        });
        let waited = ended.recv_timeout(Duration::from_secs(20));
        assert_eq!(waited, Err(mpsc::RecvTimeoutError::Disconnected), "still drawing");
        let fault = command.join().expect_err("a panic is not swallowed");
        assert_eq!(fault.downcast_ref(), Some(&"a fault in a model"));
    }
}
