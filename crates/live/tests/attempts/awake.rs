//! For tests of short times, in which waking an idle CPU would be measured too.

use lastmeter_linux::cores;
use std::sync::atomic::{AtomicBool, Ordering};

/// Does something while a thread on each CPU keeps it from falling asleep.
pub(crate) fn awake<T>(run: impl FnOnce() -> T) -> T {
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = &AtomicBool::new(false);
    std::thread::scope(|threads| {
        // Also if it fails.
        let _ends = Ends(over);
        for core in cores::allowed().unwrap() {
            threads.spawn(move || {
                cores::pin(Some(core)).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        run()
    })
}
