//! Viewers in a browser: the pages of noVNC, and RFB in a WebSocket.
//!
//! ```text
//! GET /              to vnc.html, connected at once
//! GET /core/rfb.js   a file of noVNC
//! GET /websockify    Upgrade: websocket       the display
//! ```

use super::gate::Display;
use super::session;
use super::transport::Link;
use super::welcome::PATIENCE;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use lastmeter_wire::requests::{Item, Request, parse};
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

/// Where noVNC looks for the display.
const SOCKET: &str = "/websockify";
/// The longest file of noVNC.
const FILE_MAX: u64 = 4 << 20;
/// What RFC 6455 adds to a client's key.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Serves a browser: one file, or the display until it goes.
pub(super) fn serve(display: &Display, pages: &Path, mut link: Link) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    if let Some(config) = &display.tls
        && link.begins_tls(until)?
    {
        link.encrypt(config)?;
    }
    let head = loop {
        match parse(&link.input).map_err(|error| error.to_string())? {
            Some((_, len)) => break link.take_some(len, until)?,
            None => link.more(until)?,
        }
    };
    let Ok(Some((Item::Request(request), _))) = parse(&head) else {
        return Err("no request of HTTP".to_owned());
    };
    let path = request.target.split(['?', '#']).next().unwrap_or("");
    if request.method != "GET" {
        return plain(&mut link, "405 Method Not Allowed", "only GET");
    }
    match path {
        SOCKET => match upgrade(&request, link.is_local()) {
            Ok(answer) => {
                link.say(answer.as_bytes())?;
                link.frame()?;
                session::serve(display, link)
            }
            Err((status, why)) => plain(&mut link, status, why),
        },
        "/" => {
            let to = "/vnc.html?autoconnect=true&path=websockify&resize=remote";
            let head = format!("Location: {to}\r\n");
            say(&mut link, "302 Found", "text/plain; charset=utf-8", &head, to.as_bytes())
        }
        path => match file(pages, path) {
            Some((kind, bytes)) => say(&mut link, "200 OK", kind, "", &bytes),
            None if !pages.join("vnc.html").exists() => {
                let why =
                    format!("noVNC is not in {}: install it, or set `pages`", pages.display());
                plain(&mut link, "404 Not Found", &why)
            }
            None => plain(&mut link, "404 Not Found", "no such file"),
        },
    }
}

/// The answer to a request for a WebSocket; whether it came by loopback.
fn upgrade(request: &Request<'_>, local: bool) -> Result<String, (&'static str, &'static str)> {
    const BAD: &str = "400 Bad Request";
    // Another site's name may have been made to lead here: its pages have an origin that looks right.
    if local && !request.header("host").is_some_and(is_loopback) {
        return Err(("421 Misdirected Request", "another host's name"));
    }
    let has = |name: &str, word: &str| {
        let list = request.header(name).unwrap_or("");
        list.split(',').any(|one| one.trim().eq_ignore_ascii_case(word))
    };
    if !has("upgrade", "websocket") || !has("connection", "upgrade") {
        return Err((BAD, "here is a WebSocket only"));
    }
    if request.header("sec-websocket-version") != Some("13") {
        return Err(("426 Upgrade Required", "only version 13 of WebSocket"));
    }
    let key = request.header("sec-websocket-key").filter(|key| key.len() == 24);
    let key = key.ok_or((BAD, "no key of WebSocket"))?;
    // A page of another site may not use the display in its visitor's name.
    if let Some(origin) = request.header("origin") {
        let host = origin.split_once("://").map(|(_, host)| host);
        if host.is_none() || host != request.header("host") {
            return Err(("403 Forbidden", "a page of another site"));
        }
    }
    let protocol = match has("sec-websocket-protocol", "binary") {
        true => "Sec-WebSocket-Protocol: binary\r\n",
        false => "",
    };
    Ok(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n{protocol}\r\n",
        accepted(key)
    ))
}

/// Whether a `Host` is a name of loopback, with or without a port.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// The proof that the server understood a client's key.
fn accepted(key: &str) -> String {
    let input = [key, GUID].concat();
    let algorithm = &ring::digest::SHA1_FOR_LEGACY_USE_ONLY;
    BASE64.encode(ring::digest::digest(algorithm, input.as_bytes()))
}

/// A file below `pages`, and what it is.
fn file(pages: &Path, path: &str) -> Option<(&'static str, Vec<u8>)> {
    let inner = PathBuf::from(path.trim_start_matches('/'));
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    // No percent signs: noVNC's names need none.
    let simple = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    if !simple || !inner.components().all(plain) {
        return None;
    }
    let kind = match inner.extension()?.to_str()? {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff" => "font/woff",
        "ttf" => "font/ttf",
        "oga" | "ogg" => "audio/ogg",
        "mp3" => "audio/mpeg",
        _ => return None,
    };
    // Links may lead to where Debian keeps fonts and libraries, which is where the owner's package put them.
    let path = pages.join(inner);
    let len = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?.len();
    (len <= FILE_MAX).then(|| std::fs::read(&path).ok().map(|bytes| (kind, bytes)))?
}

fn plain(link: &mut Link, status: &str, words: &str) -> Result<(), String> {
    say(link, status, "text/plain; charset=utf-8", "", format!("{words}\n").as_bytes())
}

fn say(link: &mut Link, status: &str, kind: &str, more: &str, body: &[u8]) -> Result<(), String> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{more}\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    link.say(&[head.as_bytes(), body].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455, section 1.3.
    #[test]
    fn a_key_is_answered_as_the_standard_says() {
        assert_eq!(accepted("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn nothing_outside_of_the_folder_is_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("pages")).expect("made");
        std::fs::write(folder.path().join("secret.html"), "x").expect("written");
        std::fs::write(folder.path().join("pages/vnc.html"), "y").expect("written");
        let pages = folder.path().join("pages");
        assert!(file(&pages, "/vnc.html").is_some());
        for path in ["/../secret.html", "/%2e%2e/secret.html", "//../secret.html", "/vnc.toml", "/"]
        {
            assert!(file(&pages, path).is_none(), "{path}");
        }
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let asks_at = |host: &str, origin: &str, local: bool| {
            let text = format!(
                "GET /websockify HTTP/1.1\r\nHost: {host}\r\n{origin}Upgrade: websocket\r\n\
                 Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            );
            let parsed = parse(text.as_bytes());
            let Ok(Some((Item::Request(request), _))) = parsed else { panic!("a request") };
            upgrade(&request, local).map_err(|(status, _)| status)
        };
        let asks = |origin: &str| asks_at("127.0.0.1:5800", origin, true);
        assert!(asks("").is_ok() && asks("Origin: http://127.0.0.1:5800\r\n").is_ok());
        assert_eq!(asks("Origin: http://evil.example\r\n"), Err("403 Forbidden"));
        assert_eq!(asks("Origin: null\r\n"), Err("403 Forbidden"));
        // A name that somebody else's server of names leads to this host.
        let named = "Origin: http://evil.example:5800\r\n";
        assert_eq!(asks_at("evil.example:5800", named, true), Err("421 Misdirected Request"));
        assert!(asks_at("display.example:5800", "", false).is_ok());
        for host in ["localhost:5800", "LOCALHOST", "127.0.0.1", "[::1]:5800", "[::1]"] {
            assert!(asks_at(host, "", true).is_ok(), "{host}");
        }
    }
}
