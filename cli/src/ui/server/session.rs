//! Which requests are let in.
//!
//! Any program and any page of this machine can send requests to 127.0.0.1. The address that the command prints has a token. The
//! first request with it gets a cookie, and the token is spent. All other requests need the cookie. A foreign page cannot read
//! the cookie (HttpOnly), cannot make the browser send it (SameSite=Strict), and cannot reach the server under a name of its own,
//! because the header Host must be the server's. Connections of other users of the machine do not get this far ([`super::users`]).

use std::sync::{Mutex, PoisonError};

use axum::http::Method;
use subtle::ConstantTimeEq as _;

use crate::error::Error;

const HTTP: u16 = 80;
const SECRET: usize = 32;

/// A secret of random bytes, as hexadecimal digits.
struct Secret(String);

impl Secret {
    fn random() -> Result<Self, Error> {
        let mut bytes = [0; SECRET];
        getrandom::fill(&mut bytes).map_err(Error::Random)?;
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        Ok(Self(digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()))
    }

    /// Whether a text is the secret. The time does not depend on the digits that match.
    fn is(&self, text: &str) -> bool {
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }
}

/// The one browser that is let in.
pub struct Session {
    port: u16,
    /// None once it is spent.
    token: Mutex<Option<Secret>>,
    cookie: Secret,
}

/// The parts of a request that decide on it.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    pub method: &'a Method,
    /// Whether the request is for a page, which a user may open from anywhere.
    pub is_page: bool,
    pub query: Option<&'a str>,
    pub host: Option<&'a str>,
    pub cookie: Option<&'a str>,
    /// The header Sec-Fetch-Site: where the request comes from, by the browser.
    pub site: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The request has the cookie.
    Granted,
    /// The request has the token, which is spent now. The answer sets this cookie.
    Exchanged(String),
    /// The method is neither GET nor HEAD.
    BadMethod,
    /// The header Host names another server.
    BadHost,
    /// A foreign page has sent the request.
    Foreign,
    /// The request has no valid cookie, and no token that is not spent.
    Unknown,
}

impl Session {
    pub fn new(port: u16) -> Result<Self, Error> {
        Ok(Self { port, token: Mutex::new(Some(Secret::random()?)), cookie: Secret::random()? })
    }

    /// The address of a page, with the token. It is for the user alone.
    pub fn address(&self, path: &str) -> String {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let query = token.as_ref().map(|token| format!("?token={}", token.0)).unwrap_or_default();
        format!("http://127.0.0.1:{}{path}{query}", self.port)
    }

    pub fn access(&self, asking: &Asking<'_>) -> Access {
        // A page under another name that leads to 127.0.0.1 (DNS rebinding) has this name in the header.
        if !asking.host.is_some_and(|host| self.is_own(host)) {
            return Access::BadHost;
        }
        if !matches!(*asking.method, Method::GET | Method::HEAD) {
            return Access::BadMethod;
        }
        // Cookies do not distinguish ports, so another server of this machine counts as the same site.
        let is_foreign = asking.site.is_some_and(|site| !matches!(site, "same-origin" | "none"));
        if is_foreign && !asking.is_page {
            return Access::Foreign;
        }
        if cookies(asking.cookie).any(|(name, value)| name == self.cookie_name() && self.cookie.is(value)) {
            return Access::Granted;
        }
        // HEAD is for programs that look at addresses before the user does.
        if asking.is_page && *asking.method == Method::GET && self.spend(asking.query) {
            let (name, value) = (self.cookie_name(), &self.cookie.0);
            return Access::Exchanged(format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict"));
        }
        Access::Unknown
    }

    fn is_own(&self, host: &str) -> bool {
        let is_port = |rest: &str| match rest.strip_prefix(':') {
            Some(port) => port == self.port.to_string(),
            // Browsers leave out the default port.
            None => rest.is_empty() && self.port == HTTP,
        };
        ["127.0.0.1", "localhost"].iter().any(|name| host.strip_prefix(name).is_some_and(is_port))
    }

    /// The name of the cookie. It has the port, because cookies do not distinguish ports.
    fn cookie_name(&self) -> String {
        format!("jobset-ui-{}", self.port)
    }

    /// Spends the token, if the query has it.
    fn spend(&self, query: Option<&str>) -> bool {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let given = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("token="));
        let is_right = token.as_ref().zip(given).is_some_and(|(token, given)| token.is(given));
        if is_right {
            *token = None;
        }
        is_right
    }
}

/// The names and values of a header Cookie.
fn cookies(header: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    header.unwrap_or_default().split(';').filter_map(|pair| pair.trim().split_once('='))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const PORT: u16 = 4711;

    /// A request for a page without token and cookie.
    fn asking(method: &Method) -> Asking<'_> {
        Asking { method, is_page: true, query: None, host: Some("127.0.0.1:4711"), cookie: None, site: None }
    }

    /// The query of the session's address.
    fn token(session: &Session) -> String {
        session.address("/").split_once('?').unwrap().1.to_owned()
    }

    /// A session, the query with its token, and its cookie as a browser sends it.
    fn used() -> (Session, String, String) {
        let session = Session::new(PORT).unwrap();
        let query = token(&session);
        let Access::Exchanged(cookie) = session.access(&Asking { query: Some(&query), ..asking(&Method::GET) }) else {
            panic!("the token is not accepted");
        };
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        let cookie = cookie.split(';').next().unwrap().to_owned();
        (session, query, cookie)
    }

    #[test]
    fn token_works_once_and_cookie_afterwards() {
        let (session, query, cookie) = used();
        let again = Asking { query: Some(&query), ..asking(&Method::GET) };
        assert_eq!(session.access(&again), Access::Unknown);
        let others = format!("theme=dark; {cookie}; jobset-ui-1=abc");
        for method in [Method::GET, Method::HEAD] {
            let asking = Asking { cookie: Some(&others), ..asking(&method) };
            assert_eq!(session.access(&asking), Access::Granted);
        }
        // A reload of the address has both.
        assert_eq!(session.access(&Asking { cookie: Some(&cookie), ..again }), Access::Granted);
        assert!(!session.address("/").contains("token"));
    }

    #[rstest]
    #[case::none(None)]
    #[case::empty(Some("token="))]
    #[case::another(Some("token=0000000000000000000000000000000000000000000000000000000000000000"))]
    #[case::other_name(Some("key=1"))]
    fn wrong_token_does_not_spend_the_right_one(#[case] query: Option<&str>) {
        let session = Session::new(PORT).unwrap();
        let right = token(&session);
        assert_eq!(session.access(&Asking { query, ..asking(&Method::GET) }), Access::Unknown);
        let head = Asking { query: Some(&right), ..asking(&Method::HEAD) };
        assert_eq!(session.access(&head), Access::Unknown);
        let part = Asking { query: Some(&right), is_page: false, ..asking(&Method::GET) };
        assert_eq!(session.access(&part), Access::Unknown);
        let right = Asking { query: Some(&right), ..asking(&Method::GET) };
        assert!(matches!(session.access(&right), Access::Exchanged(_)));
    }

    #[rstest]
    #[case::own(Some("127.0.0.1:4711"), Access::Granted)]
    #[case::localhost(Some("localhost:4711"), Access::Granted)]
    #[case::rebound(Some("evil.example:4711"), Access::BadHost)]
    #[case::other_port(Some("127.0.0.1:80"), Access::BadHost)]
    #[case::no_port(Some("127.0.0.1"), Access::BadHost)]
    #[case::longer(Some("127.0.0.1:47110"), Access::BadHost)]
    #[case::user(Some("127.0.0.1:4711@evil.example"), Access::BadHost)]
    #[case::none(None, Access::BadHost)]
    fn host_must_be_the_servers(#[case] host: Option<&str>, #[case] expected: Access) {
        let (session, _, cookie) = used();
        assert_eq!(session.access(&Asking { host, cookie: Some(&cookie), ..asking(&Method::GET) }), expected);
    }

    #[rstest]
    #[case::browser(80, "127.0.0.1", Access::Granted)]
    #[case::localhost(80, "localhost", Access::Granted)]
    #[case::with_port(80, "127.0.0.1:80", Access::Granted)]
    #[case::rebound(80, "evil.example", Access::BadHost)]
    #[case::other_port(443, "127.0.0.1", Access::BadHost)]
    fn host_on_port_80_has_no_port(#[case] port: u16, #[case] host: &str, #[case] expected: Access) {
        let session = Session::new(port).unwrap();
        let cookie = format!("{}={}", session.cookie_name(), session.cookie.0);
        let asking = Asking { host: Some(host), cookie: Some(&cookie), ..asking(&Method::GET) };
        assert_eq!(session.access(&asking), expected);
    }

    #[rstest]
    #[case::own_page(false, "same-origin", Access::Granted)]
    #[case::user(false, "none", Access::Granted)]
    #[case::server_on_another_port(false, "same-site", Access::Foreign)]
    #[case::foreign_page(false, "cross-site", Access::Foreign)]
    #[case::link_to_the_page(true, "cross-site", Access::Granted)]
    fn request_of_foreign_page_is_denied(#[case] is_page: bool, #[case] site: &str, #[case] expected: Access) {
        let (session, _, cookie) = used();
        let asking = Asking { is_page, cookie: Some(&cookie), site: Some(site), ..asking(&Method::GET) };
        assert_eq!(session.access(&asking), expected);
    }

    #[rstest]
    #[case(Method::POST)]
    #[case(Method::PUT)]
    #[case(Method::DELETE)]
    #[case(Method::PATCH)]
    #[case(Method::OPTIONS)]
    fn method_that_could_write_is_denied(#[case] method: Method) {
        let (session, _, cookie) = used();
        assert_eq!(session.access(&Asking { cookie: Some(&cookie), ..asking(&method) }), Access::BadMethod);
    }

    #[rstest]
    #[case::none(None)]
    #[case::empty(Some("jobset-ui-4711="))]
    #[case::other(Some("jobset-ui-4711=0000000000000000000000000000000000000000000000000000000000000000"))]
    #[case::garbage(Some(";;=;"))]
    fn wrong_cookie_is_denied(#[case] cookie: Option<&str>) {
        let (session, ..) = used();
        assert_eq!(session.access(&Asking { cookie, ..asking(&Method::GET) }), Access::Unknown);
    }

    #[test]
    fn cookie_of_another_port_is_denied() {
        let (session, _, cookie) = used();
        let value = cookie.split_once('=').unwrap().1;
        let other = format!("jobset-ui-4712={value}");
        assert_eq!(session.access(&Asking { cookie: Some(&other), ..asking(&Method::GET) }), Access::Unknown);
    }
}
