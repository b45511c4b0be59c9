//! A code server: a folder of signed modules over HTTP. Any static server does as well; for HTTPS, put one in front.
//!
//! It serves `index.toml`, `NAME/VERSION.wasm` and `NAME/VERSION.wasm.minisig`, and nothing else, whatever is asked
//! for.

use crate::{Complaint, Report, print};
use lastmeter_linux::files::read_regular;
use lastmeter_plugin::host::MODULE_LEN_MAX;
use lastmeter_plugin::index::{INDEX_LEN_MAX, Version, is_name, path};
use lastmeter_wire::requests::{HEAD_MAX, Item, parse};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Connections at once; when one more comes, the oldest is closed.
const CONNECTIONS_MAX: usize = 64;
/// The longest time for a request and its answer, however a client spreads them.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(crate) struct Serve {
    /// What `plugin sign --into` filled
    folder: PathBuf,
    /// Where to listen; port 0 takes any that is free
    #[arg(long, default_value = "127.0.0.1:7070")]
    listen: String,
}

pub(crate) fn serve(arguments: &Serve) -> Result<Report, Complaint> {
    let Serve { folder, listen } = arguments;
    if !folder.is_dir() {
        return Err(Complaint(format!("{} is no folder", folder.display())));
    }
    let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    print(&format!("http://{}\n", listener.local_addr()?))?;
    let mut open = VecDeque::<Arc<TcpStream>>::new();
    let ended = Arc::new(Mutex::new(Vec::<Arc<TcpStream>>::new()));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // Too many open files, perhaps: later there may be fewer.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let stream = Arc::new(stream);
        for gone in ended.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            open.retain(|stream| !Arc::ptr_eq(stream, &gone));
        }
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        open.push_back(stream.clone());
        let (folder, ended) = (folder.clone(), ended.clone());
        let spawned = std::thread::Builder::new().spawn(move || {
            // A client that went away has lost no more than its answer.
            let _ = answer(&folder, &stream);
            let _ = stream.shutdown(Shutdown::Write);
            ended.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        });
        if spawned.is_err() {
            open.pop_back();
        }
    }
}

/// Reads one request and answers it.
fn answer(folder: &Path, mut stream: &TcpStream) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    while matches!(parse(&bytes), Ok(None)) {
        let mut more = [0; HEAD_MAX];
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut more)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            len => bytes.extend(&more[..len]),
        }
    }
    let Ok(Some((Item::Request(request), _))) = parse(&bytes) else {
        return say(stream, until, "400 Bad Request", &[]);
    };
    let file = servable(request.target).filter(|_| request.method == "GET");
    let most = MODULE_LEN_MAX.max(INDEX_LEN_MAX);
    // Neither a pipe, which would be waited for, nor a link, which may lead anywhere.
    match file.and_then(|file| read_regular(&folder.join(file), most).ok()) {
        Some(bytes) => say(stream, until, "200 OK", &bytes),
        None => say(stream, until, "404 Not Found", &[]),
    }
}

fn say(mut stream: &TcpStream, until: Instant, status: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    for mut rest in [head.as_bytes(), body] {
        while !rest.is_empty() {
            stream.set_write_timeout(Some(left(until)?))?;
            let len = stream.write(rest)?;
            rest = &rest[len..];
        }
    }
    Ok(())
}

/// How long there is until then.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The file that a request names, if it is one of those that are served.
fn servable(url: &str) -> Option<String> {
    let name = url.strip_prefix('/')?;
    if name == "index.toml" {
        return Some(name.to_owned());
    }
    let (plugin, file) = name.split_once('/')?;
    let (file, end) = match file.strip_suffix(".minisig") {
        Some(file) => (file, ".minisig"),
        None => (file, ""),
    };
    let version = Version::parse(file.strip_suffix(".wasm")?)?;
    is_name(plugin).then(|| format!("{}{end}", path(plugin, version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_modules_signatures_and_the_index_are_served() {
        assert_eq!(servable("/index.toml").as_deref(), Some("index.toml"));
        assert_eq!(servable("/dscp/1.2.0.wasm").as_deref(), Some("dscp/1.2.0.wasm"));
        let signature = "dscp/1.2.0.wasm.minisig";
        assert_eq!(servable(&format!("/{signature}")).as_deref(), Some(signature));
        for wrong in [
            "/",
            "/../etc/passwd",
            "/dscp/../x.wasm",
            "//index.toml",
            "/a/1.0.0.key",
            "x",
            "/alice.key",
            "/dscp/1.2.0.wasm?x",
        ] {
            assert_eq!(servable(wrong), None, "{wrong}");
        }
    }
}
