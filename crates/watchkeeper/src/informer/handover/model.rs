//! A model of the handover: no message and no close is missed in any order of threads. A lost wake-up is a deadlock.

use std::collections::VecDeque;
use std::sync::Arc;

use shuttle::future::block_on;
use shuttle::thread;

use super::*;
use crate::sync::model::sample;

/// A small mailbox: its messages, and whether it is closed.
#[derive(Default)]
struct Mailbox {
    waiting: VecDeque<(u8, u8)>,
    closed: bool,
}

/// Returns the next message; `None` once the mailbox is closed and empty.
fn take(mailbox: &mut Mailbox) -> Option<Option<(u8, u8)>> {
    match mailbox.waiting.pop_front() {
        Some(message) => Some(Some(message)),
        None => mailbox.closed.then_some(None),
    }
}

#[test]
fn every_message_arrives_once_and_in_the_order_of_its_sender() {
    sample(5_000, || {
        let mailbox = Arc::new(Handover::new(Mailbox::default()));
        let senders: Vec<_> = (0..2u8)
            .map(|sender| {
                let mailbox = mailbox.clone();
                thread::spawn(move || {
                    for number in 0..3 {
                        mailbox.change(|mailbox| mailbox.waiting.push_back((sender, number)));
                    }
                })
            })
            .collect();
        let receiver = {
            let mailbox = mailbox.clone();
            thread::spawn(move || {
                let mut received = Vec::new();
                while let Some(message) = block_on(mailbox.wait(take)) {
                    received.push(message);
                }
                received
            })
        };
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        mailbox.change(|mailbox| mailbox.closed = true);
        let received = receiver.join().unwrap();
        for sender in 0..2 {
            let numbers: Vec<_> =
                received.iter().filter(|(of, _)| *of == sender).map(|(_, number)| *number).collect();
            assert_eq!(numbers, [0, 1, 2]);
        }
        assert_eq!(mailbox.look(|mailbox| mailbox.waiting.len()), 0);
    });
}

#[test]
fn a_close_is_seen_by_one_who_waits_whenever_it_comes() {
    sample(5_000, || {
        let mailbox = Arc::new(Handover::new(Mailbox::default()));
        let closer = {
            let mailbox = mailbox.clone();
            thread::spawn(move || mailbox.change(|mailbox| mailbox.closed = true))
        };
        assert_eq!(block_on(mailbox.wait(take)), None);
        closer.join().unwrap();
    });
}
