//! Checking a text in a process of its own, which ends when nobody waits for its answer any more or its time
//! is over.

use super::events::CheckJob;
use super::files::Confined;
use super::runs::program;
use super::shelf::TEXT_MAX;
use crate::{Complaint, Ended, output};
use lastmeter_lab::experiment::Experiment;
use serde_json::{Value, json};
use std::io::{BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Checks at once; further ones wait.
const AT_ONCE: usize = 4;
/// The longest check, the start of the process included.
const TIME_MAX: Duration = Duration::from_secs(5);
/// The longest answer: some problems, each with an excerpt.
const ANSWER_MAX: u64 = 4 << 20;

/// Checks the text that its standard input has, and prints the answer.
pub(super) fn work() -> Result<Ended, Complaint> {
    let mut text = String::new();
    // Each character of a text takes at most six in JSON; the rest are names.
    BufReader::new(std::io::stdin()).take(8 * TEXT_MAX as u64).read_to_string(&mut text)?;
    let job: CheckJob = serde_json::from_str(&text)?;
    lastmeter_linux::memory::limit(job.memory)?;
    output::print(&check(&job).to_string());
    Ok(Ended::Done)
}

/// The problems of a text, or a summary of it.
fn check(job: &CheckJob) -> Value {
    let library = match &job.within {
        None => Confined::bundled(),
        Some((at, root)) => Confined::new(at.clone(), root.clone()),
    };
    match Experiment::parse(&job.name, &job.text, &[], &library) {
        Err(problems) => json!({ "problems": problems }),
        Ok(experiment) => json!({
            "problems": [],
            "title": experiment.title,
            "question": experiment.question,
            "duration": experiment.duration.as_secs_f64(),
        }),
    }
}

/// Ends a process when it is dropped.
struct Ends(Arc<Mutex<Child>>);

impl Drop for Ends {
    fn drop(&mut self) {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have exited by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Has a text checked.
///
/// # Errors
/// The check took too long, or could not be made; says which.
pub(super) async fn checked(job: CheckJob) -> Result<Value, String> {
    static ROOM: Semaphore = Semaphore::const_new(AT_ONCE);
    let Ok(_permit) = ROOM.acquire().await else { return Err("the server ends".to_owned()) };
    let failed = |error: std::io::Error| format!("the text cannot be checked: {error}");
    let mut command = program();
    command.args(["serve", "--checker"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(failed)?;
    let (input, answer) = (child.stdin.take(), child.stdout.take());
    let ends = Ends(Arc::new(Mutex::new(child)));
    let (Some(mut input), Some(answer)) = (input, answer) else {
        return Err("the check has no pipes".to_owned());
    };
    // When this process is killed, both ends of its pipes close, and the thread ends.
    let exchange = tokio::task::spawn_blocking(move || {
        let line = serde_json::to_vec(&job)?;
        // If it does not listen, it has no answer either.
        let _ = input.write_all(&line);
        drop(input);
        let mut text = Vec::new();
        answer.take(ANSWER_MAX).read_to_end(&mut text)?;
        Ok::<_, std::io::Error>(text)
    });
    let found = timeout(TIME_MAX, exchange).await;
    drop(ends);
    match found {
        Err(_) => Err(format!("the check took more than {TIME_MAX:?} and was ended")),
        Ok(Ok(Ok(text))) => serde_json::from_slice(&text)
            .map_err(|_| "the check ended without an answer: it may have run out of memory".into()),
        Ok(Ok(Err(error))) => Err(failed(error)),
        Ok(Err(_)) => Err("the check failed".to_owned()),
    }
}
