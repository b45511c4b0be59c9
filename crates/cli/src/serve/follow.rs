//! Server-sent events: changes of the runs, as they happen.

use super::runs::Seen;
use super::site::Site;
use http_body_util::channel::Sender;
use hyper::body::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A comment line is sent after this time without news, to notice a browser that has left.
const ALIVE: Duration = Duration::from_secs(15);
/// Faster changes are merged.
const PACE: Duration = Duration::from_millis(60);

/// Sends changes until nobody listens. Each page gets what it has not seen yet; a slow one gets the newest
/// state less often, and never a backlog.
pub(super) async fn follow(
    site: Arc<Site>,
    run: Option<u64>,
    mut sender: Sender<Bytes, std::io::Error>,
) {
    let mut changes = site.runs.changes();
    let mut seen = Seen::default();
    // A page that loses the connection reconnects after this many milliseconds.
    let mut frame = "retry: 1000\n\n".to_owned();
    loop {
        for (name, value) in site.runs.news(run, &mut seen) {
            frame += &format!("event: {name}\ndata: {value}\n\n");
        }
        if !frame.is_empty() && sender.send_data(std::mem::take(&mut frame).into()).await.is_err() {
            return;
        }
        tokio::time::sleep(PACE).await;
        match timeout(ALIVE, changes.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => frame = ": still here\n\n".to_owned(),
        }
    }
}
