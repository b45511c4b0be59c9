//! The sockets: connections, their limits, and how answers are sent.

use super::checks::checked;
use super::follow::follow;
use super::places::{Busy, Places, Seat};
use super::route::ResultFile;
use super::site::{Answer, BODY_MAX, Site, answer};
use crate::Complaint;
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Answers computed at once.
const WORKERS: usize = 8;
/// Limits of a request's header: bytes and lines.
const HEAD_MAX: usize = 32 << 10;
const HEADERS_MAX: usize = 64;
/// Timeout for a request's header, and for its body.
const PATIENCE: Duration = Duration::from_secs(10);
/// After an interrupt, answers in the making have this long; then the program ends, whatever it does.
const LEAVING: Duration = Duration::from_millis(300);
const LEAVING_MAX: Duration = Duration::from_millis(1500);
/// Bytes read from a file at once.
const CHUNK: usize = 256 << 10;

/// The page may load only from this server, and nobody may frame it.
const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; \
form-action 'none'; object-src 'none'";
/// A ledger's page has its style and script inline, and is sandboxed from this server.
const LEDGER_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; sandbox allow-scripts allow-downloads allow-popups";

type Body = Either<Full<Bytes>, Channel<Bytes, std::io::Error>>;

/// Serves until the program is interrupted.
///
/// # Errors
/// The system has no threads or no sockets left.
pub(super) fn serve(listener: TcpListener, site: &Arc<Site>) -> Result<(), Complaint> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(WORKERS)
        .build()?;
    listener.set_nonblocking(true)?;
    let end = Arc::new(Notify::new());
    let told = end.clone();
    // Only one handler can be set; if there is one already, it ends the program.
    let _ = ctrlc::set_handler(move || {
        told.notify_one();
        std::thread::sleep(LEAVING_MAX);
        std::process::exit(0);
    });
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::select! {
            () = accept(listener, site) => {}
            () = end.notified() => {}
        }
        Ok(())
    });
    // A file that cannot be read, for example, keeps its thread.
    runtime.shutdown_timeout(LEAVING);
    served
}

async fn accept(listener: tokio::net::TcpListener, site: &Arc<Site>) {
    let places = Arc::new(Places::default());
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files, for example: others may close some.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (site, seat) = (site.clone(), Arc::new(places.enter()));
        let number = seat.number();
        let task = tokio::spawn(converse(stream, site, seat));
        places.served_by(number, task.abort_handle());
    }
}

/// Serves a connection until it is closed. A browser's protocol errors are ignored.
async fn converse(stream: TcpStream, site: Arc<Site>, seat: Arc<Seat>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let (site, seat) = (site.clone(), seat.clone());
        async move { Ok::<_, Infallible>(respond(request, site, &seat).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let _ = connection.await;
}

async fn respond(request: Request<Incoming>, site: Arc<Site>, seat: &Arc<Seat>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = match timeout(PATIENCE, Limited::new(body, BODY_MAX).collect()).await {
        Ok(Ok(body)) => body.to_bytes().to_vec(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "The request is too long.\n");
        }
        Ok(Err(_)) => return plain(StatusCode::BAD_REQUEST, "The request was cut off.\n"),
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "The request took too long.\n"),
    };
    // Until its body is there, it may be one that says nothing.
    let busy = seat.busy();
    let request = Request::from_parts(parts, body);
    let asked = site.clone();
    // This reads files and checks texts; others are served meanwhile.
    match tokio::task::spawn_blocking(move || answer(&asked, &request)).await {
        Ok(Answer::Events(run)) => {
            let (sender, channel) = Channel::new(1);
            tokio::spawn(async move {
                follow(site, run, sender).await;
                drop(busy);
            });
            let response = respond_with("text/event-stream", Either::Right(channel));
            with(response, header::CACHE_CONTROL, "no-store")
        }
        Ok(Answer::File(path, result)) => file(path, result, busy).await,
        Ok(Answer::Check(job)) => whole(match checked(job).await {
            Ok(found) => Answer::Json(StatusCode::OK, found),
            Err(fault) => {
                let fault = serde_json::json!({ "fault": fault });
                Answer::Json(StatusCode::SERVICE_UNAVAILABLE, fault)
            }
        }),
        Ok(answer) => whole(answer),
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error.\n"),
    }
}

/// An answer sent as a whole.
fn whole(answer: Answer) -> Response<Body> {
    let text = |kind, text: String| respond_with(kind, Either::Left(Full::new(text.into())));
    match answer {
        Answer::Asset(asset) => {
            let body = Full::new(Bytes::from_static(asset.text.as_bytes()));
            // Another version of the program may answer next time.
            with(respond_with(asset.kind, Either::Left(body)), header::CACHE_CONTROL, "no-cache")
        }
        Answer::Words(words) => {
            let body = Full::new(Bytes::from_static(words.as_bytes()));
            let response = respond_with("application/json", Either::Left(body));
            with(response, header::CACHE_CONTROL, "no-cache")
        }
        Answer::Json(status, value) => {
            let mut response = text("application/json", value.to_string());
            *response.status_mut() = status;
            with(response, header::CACHE_CONTROL, "no-store")
        }
        Answer::Welcome(cookie) => {
            let mut response = plain(StatusCode::SEE_OTHER, "");
            // Only digits and letters.
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            with(response, header::LOCATION, "/")
        }
        Answer::Plain(status, words) => plain(status, words),
        Answer::Events(_) | Answer::File(..) | Answer::Check(_) => {
            unreachable!("these are sent in pieces, or take a process")
        }
    }
}

async fn file(path: PathBuf, result: &'static ResultFile, busy: Busy) -> Response<Body> {
    let Ok(file) = tokio::fs::File::open(&path).await else {
        return plain(StatusCode::NOT_FOUND, "This run has no such file.\n");
    };
    let length = file.metadata().await.map_or(0, |metadata| metadata.len());
    let (sender, channel) = Channel::new(1);
    tokio::spawn(async move {
        send(file, sender).await;
        drop(busy);
    });
    let mut response = respond_with(result.kind, Either::Right(channel));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, length.into());
    if result.name == "ledger.html" {
        let policy = HeaderValue::from_static(LEDGER_POLICY);
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    } else {
        let run = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        let run = run.unwrap_or("run");
        let name = format!("attachment; filename=\"{run}-{}\"", result.name);
        if let Ok(name) = HeaderValue::from_str(&name) {
            headers.insert(header::CONTENT_DISPOSITION, name);
        }
    }
    with(response, header::CACHE_CONTROL, "no-store")
}

/// Streams a file, as fast as the browser takes it.
async fn send(mut file: tokio::fs::File, mut sender: Sender<Bytes, std::io::Error>) {
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        match (&mut file).take(CHUNK as u64).read_to_end(&mut chunk).await {
            Ok(0) => return,
            Ok(_) => {
                if sender.send_data(chunk.into()).await.is_err() {
                    return;
                }
            }
            Err(error) => return sender.abort(error),
        }
    }
}

fn plain(status: StatusCode, words: &'static str) -> Response<Body> {
    let body = Either::Left(Full::new(Bytes::from_static(words.as_bytes())));
    let mut response = respond_with("text/plain; charset=utf-8", body);
    *response.status_mut() = status;
    response
}

/// Headers of all answers.
fn respond_with(kind: &'static str, body: Body) -> Response<Body> {
    let response = Response::new(body);
    let response = with(response, header::CONTENT_TYPE, kind);
    let response = with(response, header::CONTENT_SECURITY_POLICY, POLICY);
    let response = with(response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    let response = with(response, header::REFERRER_POLICY, "no-referrer");
    let own = HeaderName::from_static("cross-origin-resource-policy");
    let response = with(response, own, "same-origin");
    let alone = HeaderName::from_static("cross-origin-opener-policy");
    with(response, alone, "same-origin")
}

fn with(mut response: Response<Body>, name: HeaderName, value: &'static str) -> Response<Body> {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}
