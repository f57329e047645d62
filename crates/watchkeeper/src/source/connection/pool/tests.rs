use http_body_util::BodyExt;
use kube_client::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use super::super::super::credentials::{Credentials, Machine};
use super::super::super::user_agent::UserAgent;
use super::*;
use crate::env::Env;

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

async fn server() -> (TcpListener, Pool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    let clock = Env::simulated(1).clock;
    let dialer = Dialer::new(&config, &clock, &UserAgent::default()).unwrap();
    (listener, Pool::new(dialer, &clock))
}

/// Sends a request without credentials.
async fn send(pool: &Pool, request: Request<Body>) -> Response<Answer> {
    let (config, clock) = (Config::new("http://api.test".parse().unwrap()), Env::simulated(1).clock);
    let none = Credentials::new(&config, &clock, Arc::new(Machine(clock.clone()))).unwrap();
    pool.clone().send(request, &none.current()).await.unwrap()
}

fn get(path: &str) -> Request<Body> {
    Request::get(format!("http://api.test:8080{path}")).body(Body::empty()).unwrap()
}

/// Returns the head of the next request.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

/// Sends a request to which the server gives `answer`, and returns its head and body.
async fn ask(pool: &Pool, stream: &mut TcpStream, path: &str, answer: &[u8]) -> (String, Bytes) {
    let answering = async {
        let head = head(stream).await;
        stream.write_all(answer).await.unwrap();
        head
    };
    let asking = async {
        let answer = send(pool, get(path)).await;
        answer.into_body().collect().await.unwrap().to_bytes()
    };
    tokio::join!(answering, asking)
}

/// As [`ask`], on a new connection, which is returned.
async fn ask_anew(server: &TcpListener, pool: &Pool, path: &str, answer: &[u8]) -> (TcpStream, Bytes) {
    let answering = async {
        let (mut stream, _) = server.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(answer).await.unwrap();
        stream
    };
    let asking = async {
        let answer = send(pool, get(path)).await;
        answer.into_body().collect().await.unwrap().to_bytes()
    };
    tokio::join!(answering, asking)
}

#[tokio::test]
async fn an_answer_read_to_its_end_leaves_its_connection_to_the_next_request() {
    let (server, pool) = server().await;
    let (mut stream, first) = ask_anew(&server, &pool, "/a", HELLO).await;
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    let (asked, second) = ask(&pool, &mut stream, "/b?limit=1", chunked).await;
    let (_, third) = ask(&pool, &mut stream, "/c", HELLO).await;
    assert_eq!((&first[..], &second[..], &third[..]), (&b"hello"[..], &b"hi"[..], &b"hello"[..]));
    assert!(asked.starts_with("get /b?limit=1 http/1.1\r\n"), "{asked}");
    assert!(asked.contains("host: api.test:8080\r\n"), "{asked}");
}

#[tokio::test]
async fn no_task_is_needed_to_read_an_answer() {
    let (server, pool) = server().await;
    let answering = async {
        let (mut stream, _) = server.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        for _ in 0..3 {
            stream.write_all(b"2\r\nhi\r\n").await.unwrap();
            tokio::task::yield_now().await;
        }
        stream
    };
    let asking = async {
        let mut body = send(&pool, get("/watch")).await.into_body();
        let mut read = 0;
        while read < 6 {
            read += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
            assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
        }
    };
    tokio::join!(answering, asking);
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_is_replaced_by_another() {
    let (server, pool) = server().await;
    let (stream, _) = ask_anew(&server, &pool, "/a", HELLO).await;
    drop(stream);
    // The runtime looks at its sockets while a task yields.
    tokio::task::yield_now().await;
    drop(ask_anew(&server, &pool, "/b", HELLO).await);
    tokio::task::yield_now().await;
    // A server may also say that it closes.
    let closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello";
    let (_open, _) = ask_anew(&server, &pool, "/c", closing).await;
    assert!(pool.0.kept.lock().is_empty());
    ask_anew(&server, &pool, "/d", HELLO).await;
}

#[tokio::test]
async fn an_answer_dropped_before_its_end_closes_its_connection() {
    let (server, pool) = server().await;
    let answering = async {
        let (mut stream, _) = server.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n").await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "it is closed");
    };
    let asking = async {
        let mut body = send(&pool, get("/watch")).await.into_body();
        body.frame().await.unwrap().unwrap();
    };
    tokio::join!(answering, asking);
    assert!(pool.0.kept.lock().is_empty());
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    let (server, pool) = server().await;
    let answering = async {
        let (mut stream, _) = server.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel").await.unwrap();
    };
    let asking = async {
        let answer = send(&pool, get("/a")).await;
        answer.into_body().collect().await.map(drop)
    };
    let ((), read) = tokio::join!(answering, asking);
    assert!(read.is_err());
}

#[tokio::test]
async fn connections_are_forgotten_after_a_while_and_kept_in_bounds() {
    let (server, pool) = server().await;
    let (_first, _) = ask_anew(&server, &pool, "/a", HELLO).await;
    tokio::time::pause();
    tokio::time::advance(KEPT).await;
    tokio::time::resume();
    let mut streams = Vec::new();
    let mut answers = Vec::new();
    for _ in 0..=MAX_KEPT {
        let answering = async {
            let (mut stream, _) = server.accept().await.unwrap();
            head(&mut stream).await;
            stream.write_all(HELLO).await.unwrap();
            streams.push(stream);
        };
        let ((), answer) = tokio::join!(answering, send(&pool, get("/b")));
        answers.push(answer);
    }
    for answer in answers {
        answer.into_body().collect().await.unwrap();
    }
    assert_eq!(pool.0.kept.lock().len(), MAX_KEPT);
}

#[tokio::test]
async fn a_connection_may_be_upgraded() {
    let (server, pool) = server().await;
    let answering = async {
        let (mut stream, _) = server.accept().await.unwrap();
        head(&mut stream).await;
        let switching = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nfirst";
        stream.write_all(switching).await.unwrap();
        let mut said = [0; 4];
        stream.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"then");
    };
    let asking = async {
        let mut request = get("/exec");
        request.headers_mut().insert("connection", HeaderValue::from_static("upgrade"));
        request.headers_mut().insert("upgrade", HeaderValue::from_static("x"));
        let answer = send(&pool, request).await;
        let mut stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
        let mut said = [0; 5];
        stream.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"first");
        stream.write_all(b"then").await.unwrap();
    };
    tokio::join!(answering, asking);
}
