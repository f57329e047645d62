use std::cell::Cell;

use futures::FutureExt;
use tokio::sync::mpsc;

use super::*;

/// Signals that a test sends.
fn scripted() -> (mpsc::UnboundedSender<&'static str>, impl Stream<Item = &'static str>) {
    let (send, mut receive) = mpsc::unbounded_channel();
    (send, stream::poll_fn(move |context| receive.poll_recv(context)))
}

#[test]
fn the_first_signal_cancels_and_the_second_exits_with_code_1() {
    let (stop, code, (send, signals)) = (CancellationToken::new(), Cell::new(None), scripted());
    let mut listening = Box::pin(listen(signals, &stop, |exit| code.set(Some(exit))));
    assert!(listening.as_mut().now_or_never().is_none());
    assert_eq!((stop.is_cancelled(), code.get()), (false, None));
    send.send("SIGTERM").unwrap();
    assert!(listening.as_mut().now_or_never().is_none());
    assert_eq!((stop.is_cancelled(), code.get()), (true, None));
    send.send("SIGINT").unwrap();
    assert!(listening.as_mut().now_or_never().is_some());
    assert_eq!(code.get(), Some(1));
}

#[test]
fn without_signals_nothing_is_cancelled() {
    let stop = CancellationToken::new();
    let ended = listen(stream::empty(), &stop, |_| panic!("exit")).now_or_never();
    assert_eq!((ended, stop.is_cancelled()), (Some(Ended), false));
}
