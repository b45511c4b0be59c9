//! Which requests are allowed: right host, right token, and not sent by another page (CSRF).

use hyper::header::{CONTENT_TYPE, COOKIE, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{Method, Request};
use lastmeter_linux::token::same;
use std::net::{IpAddr, SocketAddr};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It names another host: a foreign name was made to point here (DNS rebinding).
    Host,
    /// It has no token, or a wrong one.
    Token,
    /// Another page sent it.
    Foreign,
}

/// Checks requests before anything else reads them.
#[derive(Debug)]
pub(super) struct Guard {
    at: SocketAddr,
    token: Option<String>,
    /// The host name by which other machines may address it.
    name: Option<String>,
}

impl Guard {
    pub(super) fn new(at: SocketAddr, token: Option<String>) -> Guard {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let name = name.map(|name| name.trim().to_lowercase()).filter(|name| !name.is_empty());
        Guard { at, token, name }
    }

    /// The link that leads to the page.
    pub(super) fn url(&self) -> String {
        // A wildcard address is reachable here, too.
        let mut at = self.at;
        if at.ip().is_unspecified() {
            at.set_ip(match at.ip() {
                IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
                IpAddr::V6(_) => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
            });
        }
        match &self.token {
            None => format!("http://{at}/"),
            Some(token) => format!("http://{at}/?token={token}"),
        }
    }

    /// The cookie that carries the token, where `given` is the right one.
    pub(super) fn cookie_for(&self, given: &str) -> Option<String> {
        let token = self.token.as_deref().filter(|token| same(token, given))?;
        Some(format!("{}={token}; Path=/; HttpOnly; SameSite=Strict", self.cookie_name()))
    }

    /// Cookies ignore ports: the name tells several servers on one machine apart.
    fn cookie_name(&self) -> String {
        format!("lastmeter-{}", self.at.port())
    }

    /// Whether this request is allowed; `given` is the token in its query.
    pub(super) fn check<B>(
        &self,
        request: &Request<B>,
        given: Option<&str>,
    ) -> Result<(), Refused> {
        let headers = request.headers();
        // Of two names, somebody else may have checked the other one (RFC 9112 §3.2).
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).ok_or(Refused::Host)?;
        let named = request.uri().authority().is_none_or(|named| named.as_str() == host);
        if hosts.next().is_some() || !named || !self.knows(host) {
            return Err(Refused::Host);
        }
        self.check_token(headers, given)?;
        // A read gives nothing to another page, which cannot see the answer.
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(());
        }
        // A form on another page can send neither this type nor this origin.
        let own = text(headers, ORIGIN).is_none_or(|origin| {
            origin.strip_prefix("http://").is_some_and(|from| from.eq_ignore_ascii_case(host))
        });
        let json = text(headers, CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
        let site = text(headers, HeaderName::from_static("sec-fetch-site"));
        let near = site.is_none_or(|site| matches!(site, "same-origin" | "none"));
        if own && json && near { Ok(()) } else { Err(Refused::Foreign) }
    }

    fn check_token(&self, headers: &HeaderMap, given: Option<&str>) -> Result<(), Refused> {
        let Some(token) = &self.token else { return Ok(()) };
        let name = self.cookie_name();
        let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let mut values = cookies
            .flat_map(|line| line.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value);
        let right = values.any(|value| same(token, value));
        let right = right || given.is_some_and(|given| same(token, given));
        if right { Ok(()) } else { Err(Refused::Token) }
    }

    /// Whether `host` is a name of this server. A name that somebody else owns can be made to point
    /// here, an address cannot. Ports may differ: a tunnel has its own.
    fn knows(&self, host: &str) -> bool {
        let Some(name) = name_of(host) else { return false };
        if name.eq_ignore_ascii_case("localhost") {
            return true;
        }
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match (address, self.at.ip().is_loopback()) {
            (Ok(address), true) => address.is_loopback(),
            (Ok(_), false) => true,
            (Err(_), true) => false,
            (Err(_), false) => self.name.as_deref() == Some(name.to_lowercase().as_str()),
        }
    }
}

/// The host without its port; `None` where the port is not a number.
fn name_of(host: &str) -> Option<&str> {
    let end = match host.rfind(']') {
        Some(end) => end + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at_checked(end)?;
    let number = |port: &str| port.parse::<u16>().is_ok();
    let valid = port.is_empty() || port.strip_prefix(':').is_some_and(number);
    (valid && !name.is_empty()).then_some(name)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_linux::token;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn local() -> Guard {
        Guard::new(([127, 0, 0, 1], 8642).into(), None)
    }

    #[test]
    fn a_loopback_server_accepts_only_loopback_names() {
        let ask = |host| local().check(&request("GET", &[("host", host)]), None);
        for host in ["localhost", "localhost:8642", "127.0.0.1:8642", "127.0.0.1:9", "[::1]:8642"] {
            assert_eq!(ask(host), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8642",
            "127.0.0.1.evil.example",
            "",
            "10.0.0.1",
            "localhost.evil.example",
            "localhost:",
            "localhost:x",
            "[::1",
            "]:",
            "127.0.0.1:8642:1",
        ] {
            assert_eq!(ask(host), Err(Refused::Host), "{host}");
        }
        assert_eq!(local().check(&request("GET", &[]), None), Err(Refused::Host));
        for second in ["evil.example", "localhost:8642"] {
            let two = request("GET", &[("host", "localhost:8642"), ("host", second)]);
            assert_eq!(local().check(&two, None), Err(Refused::Host));
        }
        let mut absolute = request("GET", &[("host", "localhost:8642")]);
        *absolute.uri_mut() = "http://evil.example/".parse().unwrap();
        assert_eq!(local().check(&absolute, None), Err(Refused::Host));
    }

    #[test]
    fn a_public_server_accepts_addresses_but_not_foreign_names() {
        let guard =
            Guard { name: Some("lab".to_owned()), ..Guard::new(([0, 0, 0, 0], 80).into(), None) };
        let ask = |host| guard.check(&request("GET", &[("host", host)]), None);
        assert_eq!(ask("192.0.2.7"), Ok(()));
        assert_eq!(ask("Lab:80"), Ok(()));
        assert_eq!(ask("evil.example"), Err(Refused::Host));
    }

    #[test]
    fn a_token_is_required_and_a_cookie_may_carry_it() {
        let token = token::random().unwrap();
        let guard = Guard::new(([0, 0, 0, 0], 80).into(), Some(token.clone()));
        assert_eq!(guard.url(), format!("http://127.0.0.1:80/?token={token}"));
        let ask = |headers: &[(&str, &str)], given: Option<&str>| {
            let all: Vec<_> = [("host", "192.0.2.7")].iter().chain(headers).copied().collect();
            guard.check(&request("GET", &all), given)
        };
        assert_eq!(ask(&[], None), Err(Refused::Token));
        assert_eq!(ask(&[], Some("")), Err(Refused::Token));
        assert_eq!(ask(&[], Some(&token[1..])), Err(Refused::Token));
        assert_eq!(ask(&[], Some(&token)), Ok(()));
        let cookie = guard.cookie_for(&token).unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));
        let pair = cookie.split(';').next().unwrap();
        assert_eq!(ask(&[("cookie", pair)], None), Ok(()));
        assert_eq!(ask(&[("cookie", &format!("a=b; {pair}"))], None), Ok(()));
        assert_eq!(ask(&[("cookie", "lastmeter-80=x")], None), Err(Refused::Token));
        assert_eq!(guard.cookie_for("x"), None);
    }

    #[test]
    fn another_page_cannot_write() {
        let json = ("content-type", "application/json");
        let post = |headers: &[(&str, &str)]| {
            let all: Vec<_> = [("host", "localhost:8642")].iter().chain(headers).copied().collect();
            local().check(&request("POST", &all), None)
        };
        assert_eq!(post(&[json]), Ok(()));
        assert_eq!(post(&[json, ("origin", "http://localhost:8642")]), Ok(()));
        assert_eq!(post(&[json, ("origin", "http://localhost:1")]), Err(Refused::Foreign));
        assert_eq!(post(&[json, ("origin", "null")]), Err(Refused::Foreign));
        assert_eq!(post(&[json, ("sec-fetch-site", "cross-site")]), Err(Refused::Foreign));
        assert_eq!(post(&[("content-type", "text/plain")]), Err(Refused::Foreign));
        assert_eq!(post(&[]), Err(Refused::Foreign));
    }
}
