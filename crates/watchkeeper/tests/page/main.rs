//! The page for people over a loopback socket: escaping, headers, streams and their bound. `browser/` shows it in a browser.
#![cfg(feature = "admin")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod invented;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::Env;
use watchkeeper::process::{AdminAddress, AdminServer, Pages};

use self::invented::Invented;

const VIEWS: [&str; 5] = [
    "/",
    "/controllers/websites",
    "/controllers/websites?state=retrying&sort=until",
    "/explain?kind=Website&key=tailor/site-000003",
    "/informers",
];

/// A page that is served.
struct Served {
    address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl Served {
    async fn new(program: Invented) -> Self {
        Self::with(program, false).await
    }

    async fn with(program: Invented, actions: bool) -> Self {
        let mut pages = Pages::default();
        pages.actions = actions;
        let env = program.env.clone();
        pages.explain = Some(Arc::new(program));
        let address = AdminAddress::At("127.0.0.1:0".parse().unwrap());
        let server = AdminServer::bind(address, pages, &env).await.unwrap();
        let (address, stop) = (server.address().unwrap(), CancellationToken::new());
        let served = tokio::spawn(server.run(stop.clone()));
        Self { address, stop, served }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.served.await.unwrap();
    }

    /// Sends a request, and returns the connection.
    async fn send(&self, method: &str, path: &str, headers: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        BufReader::new(stream)
    }

    /// Returns the head and the body of an answer.
    async fn get(&self, path: &str) -> (String, String) {
        let mut stream = self.send("GET", path, "Connection: close\r\n").await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// Returns the status of an answer to a request that names another host.
    async fn get_of(&self, host: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    /// Returns the answer to a POST.
    async fn post(&self, path: &str, headers: &str) -> String {
        let mut stream =
            self.send("POST", path, &format!("{headers}Content-Length: 0\r\nConnection: close\r\n")).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Opens a stream of a view, and returns it with the first line of its answer.
    async fn follow(&self, path: &str) -> (String, BufReader<TcpStream>) {
        let mut stream = self.send("GET", path, "Accept: text/event-stream\r\n").await;
        let mut status = String::new();
        stream.read_line(&mut status).await.unwrap();
        (status, stream)
    }
}

/// Reads until a line contains `text`.
async fn read_to(stream: &mut BufReader<TcpStream>, text: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).await.unwrap(), 0, "the stream ended before {text:?}");
        if line.contains(text) {
            return line;
        }
    }
}

/// Returns whether there is an attribute such as `onclick`.
fn has_handler(body: &str) -> bool {
    body.match_indices(" on").any(|(at, _)| {
        let rest = &body[at + " on".len()..];
        rest.trim_start_matches(|sign: char| sign.is_ascii_alphabetic()).starts_with('=')
    })
}

#[tokio::test]
async fn every_view_has_a_heading_a_policy_and_no_foreign_address() {
    let served = Served::new(Invented::new(10, &Env::system())).await;
    for view in VIEWS {
        let (head, body) = served.get(view).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{view}: {head}");
        let head = head.to_lowercase();
        assert!(head.contains("content-security-policy: default-src 'none'; "), "{view}: {head}");
        assert!(
            head.contains("x-content-type-options: nosniff") && head.contains("no-store"),
            "{view}: {head}"
        );
        assert!(!head.contains("unsafe"), "{view}: {head}");
        assert_eq!(body.matches("<h1").count(), 1, "{view}");
        assert_eq!(body.matches("<main").count(), 1, "{view}");
        assert!(!body.contains("://") && !body.contains(" style=") && !has_handler(&body), "{view}: {body}");
        assert_eq!(
            body.matches("<script").count(),
            body.matches("<script src=\"/page.js?").count(),
            "{view}"
        );
    }
    served.stop().await;
}

#[tokio::test]
async fn a_name_that_another_site_lets_lead_here_is_shown_nothing() {
    let served = Served::new(Invented::new(10, &Env::system())).await;
    for path in VIEWS.into_iter().chain(["/debug/controllers", "/debug/informers"]) {
        for host in ["evil.example:8080", "127.0.0.1.evil.example"] {
            let status = served.get_of(host, path).await;
            assert!(status.starts_with("HTTP/1.1 403"), "{host} {path}: {status}");
        }
        for host in ["localhost:8080", "127.0.0.1", "[::1]:80"] {
            let status = served.get_of(host, path).await;
            assert!(status.starts_with("HTTP/1.1 200"), "{host} {path}: {status}");
        }
    }
    // Probes and scrapers may use any name.
    for path in ["/healthz", "/readyz"] {
        assert!(served.get_of("operator.example", path).await.starts_with("HTTP/1.1 200"), "{path}");
    }
    served.stop().await;
}

#[tokio::test]
async fn names_and_errors_with_markup_are_shown_as_they_are() {
    const TAINT: &str = "\"><script>alert('x')</script>&<img src=x onerror=y>";
    let mut program = Invented::new(10, &Env::system());
    program.taint = TAINT;
    let served = Served::new(program).await;
    let mut views = VIEWS.map(str::to_owned).to_vec();
    views.push("/controllers/websites?q=%22%3E%3Cscript%3Ealert(1)".to_owned());
    views.push("/controllers/websites?sort=%3Cscript%3E".to_owned());
    views.push("/controllers/%3Cscript%3E".to_owned());
    views.push("/explain?kind=%3Cscript%3E&key=%3Cimg%3E".to_owned());
    views.push("/explain?kind=Website&key=%22%3E%3Cimg%3E".to_owned());
    for view in views {
        let (_, body) = served.get(&view).await;
        assert!(body.contains("<h1"), "{view}: {body}");
        assert!(!body.contains("<img") && !body.contains("<script>"), "{view}: {body}");
        assert!(body.contains("&lt;script&gt;") || body.contains("&lt;img"), "{view}: {body}");
    }
    served.stop().await;
}

#[tokio::test]
async fn the_files_of_the_page_are_served_and_those_of_others_are_not() {
    let served = Served::new(Invented::new(10, &Env::system())).await;
    for (file, content_type) in
        [("/page.css", "text/css"), ("/page.js", "text/javascript"), ("/page.svg", "image/svg+xml")]
    {
        let (head, body) = served.get(file).await;
        assert!(head.contains(content_type) && !body.is_empty(), "{head}");
    }
    for missing in ["/page.html", "/controllers/", "/favicon.ico"] {
        assert!(served.get(missing).await.0.starts_with("HTTP/1.1 404"), "{missing}");
    }
    // What is no view is as it was.
    assert!(served.get("/healthz").await.0.starts_with("HTTP/1.1 200"));
    served.stop().await;
}

#[tokio::test]
async fn what_does_not_exist_is_said_with_what_does() {
    let served = Served::new(Invented::new(10, &Env::system())).await;
    let (head, body) = served.get("/explain?kind=Wbsite&key=a/b").await;
    assert!(head.starts_with("HTTP/1.1 404") && body.contains("did you mean Website?"), "{head}: {body}");
    assert!(body.contains("href=\"/explain?kind=Website&amp;key=a%2Fb\""), "the way there: {body}");
    assert!(body.contains("id=\"ask-key\""), "and a form to ask again: {body}");
    for page in ["0", "-1", "99999999999999999999", "18446744073709551615"] {
        let (head, _) = served.get(&format!("/controllers/websites?page={page}")).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{page}: {head}");
    }
    let (head, body) = served.get("/controllers/websites?sort=colour").await;
    assert!(head.starts_with("HTTP/1.1 400") && body.contains("failures"), "{head}: {body}");
    served.stop().await;
}

#[tokio::test]
async fn the_overview_asks_for_a_kind_that_is_watched_and_a_key() {
    let served = Served::new(Invented::new(10, &Env::system())).await;
    let (_, body) = served.get("/").await;
    let (_, form) = body.split_once("action=\"/explain\"").unwrap();
    let (form, _) = form.split_once("</form>").unwrap();
    for option in ["\"certificates.example.com\"", "\"deployments.apps\"", "\"websites.example.com\""] {
        assert!(form.contains(&format!("<option value={option}>")), "{form}");
    }
    assert!(
        form.contains("<select id=\"ask-kind\" name=\"kind\">") && form.contains("name=\"key\""),
        "{form}"
    );
    served.stop().await;
}

#[tokio::test]
async fn keys_are_sorted_both_ways() {
    let served = Served::new(Invented::new(10, &Env::system())).await;
    let link = |body: &str, text: &str| {
        let (before, _) = body.split_once(text).unwrap();
        before.rsplit("href=\"").next().unwrap().trim_end_matches("\">").replace("&amp;", "&")
    };
    let (_, body) = served.get("/controllers/websites?sort=failures").await;
    assert!(body.contains("aria-sort=\"descending\""), "{body}");
    let other_way = link(&body, "Failures<span");
    assert_eq!(other_way, "/controllers/websites?sort=failures&reverse=true");
    let (_, body) = served.get(&other_way).await;
    assert!(body.contains("aria-sort=\"ascending\""), "{body}");
    assert_eq!(link(&body, "Failures<span"), "/controllers/websites?sort=failures");
    served.stop().await;
}

#[tokio::test]
async fn a_controller_shows_a_page_of_its_keys_and_no_more() {
    let served = Served::new(Invented::new(100_000, &Env::system())).await;
    let (_, first) = served.get("/controllers/websites").await;
    assert!(first.contains("1 to 50 of 100,000 keys") && first.contains("Page 1 of 2,000"), "{first}");
    assert_eq!(first.matches("<tr").count(), 51);
    assert!(!first.contains("Previous page"), "{first}");
    let link = |body: &str, rel: &str| {
        let (_, rest) = body.split_once(&format!("rel=\"{rel}\" href=\"")).unwrap();
        rest.split('"').next().unwrap().replace("&amp;", "&")
    };
    let (_, second) = served.get(&link(&first, "next")).await;
    assert!(second.contains("51 to 100 of 100,000 keys"), "{second}");
    assert_eq!(link(&second, "prev"), "/controllers/websites");
    let (_, third) = served.get(&link(&second, "next")).await;
    assert!(third.contains("101 to 150 of 100,000 keys") && third.contains("First page"), "{third}");
    let (_, back) = served.get(&link(&third, "prev")).await;
    assert_eq!(back.matches("51 to 100 of 100,000 keys").count(), 1, "{back}");
    let (_, found) = served.get("/controllers/websites?q=site-099999").await;
    assert!(found.contains("1 to 1 of 1 key") && found.contains("site-099999"), "{found}");
    served.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_sends_the_view_again_and_ends_at_the_stop() {
    let served = Served::new(Invented::new(10, &Env::simulated(1))).await;
    let (status, mut stream) = served.follow("/informers").await;
    assert!(status.starts_with("HTTP/1.1 200"), "{status}");
    read_to(&mut stream, "content-type: text/event-stream").await;
    let first = read_to(&mut stream, "data:").await;
    let second = read_to(&mut stream, "data:").await;
    assert!(first.contains("<h1>Informers</h1>") && !first.contains("<main"), "{first}");
    assert_ne!(first, second, "times go on");
    served.stop().await;
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "the stream ends as it should: {rest}");
}

#[tokio::test]
async fn a_thousand_open_pages_are_bounded_and_the_rest_is_refused_clearly() {
    let served = Served::new(Invented::new(10, &Env::system())).await;
    let (mut open, mut refused) = (Vec::new(), 0);
    for page in 0..1_000 {
        let (status, mut stream) = served.follow("/").await;
        if status.starts_with("HTTP/1.1 200") {
            open.push(stream);
        } else {
            assert!(status.starts_with("HTTP/1.1 503"), "{page}: {status}");
            refused += 1;
            if refused == 1 {
                read_to(&mut stream, "retry-after: 15").await;
                read_to(&mut stream, "32 pages are open already").await;
            }
        }
    }
    assert_eq!((open.len(), refused), (32, 968));
    // The page itself, and probes, are answered all the while.
    assert!(served.get("/").await.0.starts_with("HTTP/1.1 200"));
    assert!(served.get("/healthz").await.0.starts_with("HTTP/1.1 200"));
    // One that is closed makes room for another.
    drop(open.pop());
    let (status, _stream) = loop {
        let (status, stream) = served.follow("/").await;
        if status.starts_with("HTTP/1.1 200") {
            break (status, stream);
        }
    };
    assert!(status.starts_with("HTTP/1.1 200"));
    served.stop().await;
}

#[tokio::test(start_paused = true)]
async fn charts_fill_with_the_figures_of_the_last_minutes() {
    let env = Env::simulated(1);
    let served = Served::new(Invented::new(10, &env)).await;
    env.clock.sleep(Duration::from_millis(10)).await;
    assert!(served.get("/").await.1.contains("Waiting: no figures yet"));
    env.clock.sleep(Duration::from_secs(60)).await;
    let (_, body) = served.get("/").await;
    assert!(body.contains("aria-label=\"Waiting: now 1, at most 1 in the last 10 minutes\""), "{body}");
    served.stop().await;
}

const RECONCILE: &str = "/controllers/websites/reconcile?key=tailor%2Fsite-000003";

#[tokio::test]
async fn nothing_is_reconciled_on_request_unless_that_is_enabled() {
    let program = Invented::new(10, &Env::system());
    let asked = program.asked.clone();
    let served = Served::new(program).await;
    assert!(!served.get(VIEWS[3]).await.1.contains("Reconcile now"));
    let answer = served.post(RECONCILE, "").await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("--admin-actions"), "{answer}");
    assert!(asked.lock().unwrap().is_empty());
    served.stop().await;
}

#[tokio::test]
async fn an_object_is_reconciled_on_request_of_the_page_and_of_no_other_site() {
    let program = Invented::new(10, &Env::system());
    let asked = program.asked.clone();
    let served = Served::with(program, true).await;
    let (_, body) = served.get(VIEWS[3]).await;
    assert!(body.contains(&format!("method=\"post\" action=\"{RECONCILE}\"")), "{body}");
    assert!(!served.get(VIEWS[0]).await.1.contains("Reconcile now"));
    let elsewhere = "Origin: http://evil.example\r\n";
    assert!(served.post(RECONCILE, elsewhere).await.starts_with("HTTP/1.1 403"));
    assert!(served.get(RECONCILE).await.0.starts_with("HTTP/1.1 404"), "a link does nothing");
    assert!(served.post("/controllers/websites/reconcile", "").await.starts_with("HTTP/1.1 400"));
    assert!(served.post("/controllers/websites/reconcile?key=gone", "").await.starts_with("HTTP/1.1 404"));
    assert!(served.post("/", "").await.starts_with("HTTP/1.1 405"));
    assert!(asked.lock().unwrap().is_empty());

    let own = format!("Origin: http://{}\r\nAccept: text/html,*/*\r\n", served.address);
    let answer = served.post(RECONCILE, &own).await;
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    assert!(
        answer.contains("location: /explain?kind=websites.example.com&key=tailor%2Fsite-000003"),
        "{answer}"
    );
    assert!(served.post(RECONCILE, "").await.starts_with("HTTP/1.1 202"), "from no browser");
    assert_eq!(*asked.lock().unwrap(), ["websites tailor/site-000003"; 2]);
    served.stop().await;
}
