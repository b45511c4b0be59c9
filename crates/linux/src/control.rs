//! How a running daemon is asked and told: a Unix socket that only its owner reaches; a line of JSON each way.
//!
//! ```text
//! lastmeter router show ports --json        {"show": "ports"}\n      ->
//!                                        <- {"good": {...}}\n   or   {"wrong": "no port is called ..."}\n
//! ```
//!
//! A line is at most [`LINE_LEN_MAX`] bytes; one that is longer, or no JSON, ends the connection with an answer that
//! says so. Questions of one connection are answered in order. At most [`ASKERS_MAX`] connections are served at once.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest question or answer.
pub const LINE_LEN_MAX: usize = 4 << 20;
/// The most connections at once.
pub const ASKERS_MAX: usize = 16;
/// A connection that says nothing for so long is closed.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How often a server looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

/// A socket that is being served; dropped, it is closed and its file removed.
pub struct Control {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Serves questions at `path`, on threads of its own. A socket on which nobody answers any more is replaced;
    /// anything else at that path is left alone, with an error.
    pub fn serve(
        path: &Path,
        answer: impl Fn(&Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Result<Control, String> {
        let place = |error: std::io::Error| format!("{}: {error}", path.display());
        if let Ok(found) = std::fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(format!("{}: exists, and is not a socket", path.display()));
            }
            if UnixStream::connect(path).is_ok() {
                return Err(format!("{}: another one is running there", path.display()));
            }
            std::fs::remove_file(path).map_err(place)?;
        }
        let listener = UnixListener::bind(path).map_err(place)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(place)?;
        listener.set_nonblocking(true).map_err(place)?;
        let stop = Arc::<AtomicBool>::default();
        let (stopped, answer) = (stop.clone(), Arc::new(answer));
        let thread = std::thread::spawn(move || {
            let askers = Arc::<AtomicUsize>::default();
            while !stopped.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(LOOK);
                    continue;
                };
                if askers.fetch_add(1, Ordering::Relaxed) >= ASKERS_MAX {
                    askers.fetch_sub(1, Ordering::Relaxed);
                    let _ = say(&stream, &json!({ "wrong": "too many connections" }));
                    continue;
                }
                let (askers, answer, stopped) = (askers.clone(), answer.clone(), stopped.clone());
                std::thread::spawn(move || {
                    converse(&stream, &*answer, &stopped);
                    askers.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Ok(Control { path: path.to_owned(), stop, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Answers the questions of one connection.
fn converse(
    stream: &UnixStream,
    answer: &dyn Fn(&Value) -> Result<Value, String>,
    stopped: &AtomicBool,
) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let mut reader = BufReader::new(stream);
    while !stopped.load(Ordering::Relaxed) {
        let said = match line(&mut reader) {
            Ok(None) => return,
            Ok(Some(text)) => match serde_json::from_str::<Value>(&text) {
                Ok(question) => match answer(&question) {
                    Ok(good) => json!({ "good": good }),
                    Err(wrong) => json!({ "wrong": wrong }),
                },
                Err(error) => json!({ "wrong": format!("no JSON: {error}") }),
            },
            Err(error) => {
                let _ = say(stream, &json!({ "wrong": error }));
                return;
            }
        };
        if say(stream, &said).is_err() {
            return;
        }
    }
}

/// The next line; `None` at the end.
fn line(reader: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut bytes = Vec::new();
    let mut limited = reader.take(LINE_LEN_MAX as u64 + 1);
    limited.read_until(b'\n', &mut bytes).map_err(|error| error.to_string())?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.len() > LINE_LEN_MAX {
        return Err(format!("a line of more than {LINE_LEN_MAX} bytes"));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| "not text".to_owned())
}

fn say(mut stream: &UnixStream, value: &Value) -> std::io::Result<()> {
    stream.write_all(format!("{value}\n").as_bytes())
}

/// Asks a running daemon.
pub fn ask(path: &Path, question: &Value) -> Result<Value, String> {
    let place = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
            format!("{}: nothing is running there", path.display())
        }
        _ => format!("{}: {error}", path.display()),
    };
    let stream = UnixStream::connect(path).map_err(place)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(place)?;
    say(&stream, question).map_err(place)?;
    let text = line(&mut BufReader::new(&stream))?;
    let text = text.ok_or(format!("{}: closed without an answer", path.display()))?;
    let mut answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    match answer.get_mut("good") {
        Some(good) => Ok(good.take()),
        None => Err(answer["wrong"].as_str().unwrap_or("an answer without meaning").to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("lastmeter-control-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_question_is_answered_and_the_socket_goes_with_its_server() {
        let path = socket("answers");
        let control = Control::serve(&path, |question| match question["show"].as_str() {
            Some(what) => Ok(json!(what.len())),
            None => Err("ask for something to `show`".to_owned()),
        });
        let control = control.expect("a socket");
        assert_eq!(ask(&path, &json!({ "show": "ports" })), Ok(json!(5)));
        assert_eq!(ask(&path, &json!({})), Err("ask for something to `show`".to_owned()));
        let again = Control::serve(&path, |_| Ok(Value::Null)).err().expect("it is taken");
        assert!(again.contains("another one is running"), "{again}");
        drop(control);
        assert!(ask(&path, &json!({})).expect_err("it is gone").contains("nothing is running"));
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_json_or_too_long_is_refused() {
        let path = socket("refuses");
        let _control = Control::serve(&path, |_| Ok(Value::Null)).expect("a socket");
        let told = |bytes: &[u8]| {
            let mut stream = UnixStream::connect(&path).expect("connected");
            stream.write_all(bytes).expect("written");
            let answer = line(&mut BufReader::new(&stream));
            answer.expect("an answer").expect("a line")
        };
        assert!(told(b"show ports\n").contains("no JSON"));
        assert!(told(&[0xff, b'\n']).contains("not text"));
        let long = vec![b'1'; LINE_LEN_MAX + 1];
        assert!(told(&long).contains("more than"));
        assert!(ask(&path, &json!(1)).is_ok(), "others are served");
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let path = socket("file");
        std::fs::write(&path, "mine").expect("written");
        let wrong = Control::serve(&path, |_| Ok(Value::Null)).err().expect("refused");
        assert!(wrong.contains("not a socket"));
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "mine");
        std::fs::remove_file(&path).expect("removed");
    }
}
