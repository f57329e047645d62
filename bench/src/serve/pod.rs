//! A Pod stored once as JSON, with slots where its versions differ.

use std::fmt::{self, Write};

use jiff::Timestamp;

/// What a slot shows; each follows from the number of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// `metadata.resourceVersion`.
    ResourceVersion,
    /// `metadata.uid`.
    Uid,
    /// The time of creation.
    Created,
    /// A time at which the status changed.
    Transition,
    /// `True` or `False`, as conditions write it.
    Ready,
    /// `true` or `false`, as container statuses write it.
    ContainerReady,
    /// A container's count of restarts.
    Restarts,
    /// The value of the label [`TRACK`].
    Track,
    /// The value of the annotation [`CHECKPOINT`].
    Checkpoint,
}

/// The label that events change.
pub(crate) const TRACK: &str = "example.com/track";
/// The annotation that events change; its length changes with it.
pub(crate) const CHECKPOINT: &str = "example.com/checkpoint";
/// The version of the first list; event `n` has the version `BASE + n`, and all Pods start below.
pub(crate) const BASE: u64 = 10_000_000;
/// The time of [`BASE`], in seconds since 1970: each event is a second after the one before.
pub(crate) const EPOCH: i64 = 1_772_000_000;

/// Which event wrote which part of a Pod last; 0 stands for the Pod as it was generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) event: u32,
    pub(crate) born: u32,
    pub(crate) status: u32,
    pub(crate) labels: u32,
    pub(crate) annotations: u32,
}

/// One Pod as an item of a list: without `kind` and `apiVersion`, which [`Pod::write_whole`] puts in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    json: Box<str>,
    // In the order of their places in the text.
    slots: Box<[Slot]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    start: u32,
    end: u32,
    part: Part,
}

impl Pod {
    pub(crate) fn len(&self) -> usize {
        self.json.len()
    }

    /// Appends the Pod as it is in `version`, in the form of a list's item.
    pub(crate) fn write_item(&self, out: &mut Vec<u8>, version: &Version, salt: u64) {
        self.write_from(0, out, version, salt);
    }

    /// Appends the Pod as a whole object, as watch events carry it.
    pub(crate) fn write_whole(&self, out: &mut Vec<u8>, version: &Version, salt: u64) {
        out.extend_from_slice(br#"{"kind":"Pod","apiVersion":"v1","#);
        // The head has the opening brace.
        self.write_from(1, out, version, salt);
    }

    fn write_from(&self, start: usize, out: &mut Vec<u8>, version: &Version, salt: u64) {
        let json = self.json.as_bytes();
        let mut copied = start;
        for slot in &self.slots {
            let number = slot.part.number(version);
            if number != 0 {
                out.extend_from_slice(&json[copied..slot.start as usize]);
                slot.part.write(out, number, salt);
                copied = slot.end as usize;
            }
        }
        out.extend_from_slice(&json[copied..]);
    }
}

impl Part {
    fn number(self, version: &Version) -> u32 {
        match self {
            Self::ResourceVersion => version.event,
            Self::Uid | Self::Created => version.born,
            Self::Transition | Self::Ready | Self::ContainerReady | Self::Restarts => version.status,
            Self::Track => version.labels,
            Self::Checkpoint => version.annotations,
        }
    }

    fn write(self, out: &mut Vec<u8>, number: u32, salt: u64) {
        let chance = mix(salt ^ u64::from(number));
        let ready = !chance.is_multiple_of(5);
        let mut put = |args: fmt::Arguments<'_>| {
            // A Vec takes every byte it is given.
            let _ = std::io::Write::write_fmt(out, args);
        };
        match self {
            Self::ResourceVersion => put(format_args!("{}", BASE + u64::from(number))),
            Self::Uid => {
                let (a, b) = (mix(chance), mix(!chance));
                put(format_args!(
                    "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
                    a >> 32,
                    a & 0xffff,
                    (a >> 16) & 0xfff,
                    b >> 52,
                    b & 0xffff_ffff_ffff
                ));
            }
            Self::Created | Self::Transition => put(format_args!("{}", time(i64::from(number)))),
            Self::Ready => put(format_args!("{}", if ready { "True" } else { "False" })),
            Self::ContainerReady => put(format_args!("{ready}")),
            Self::Restarts => put(format_args!("{}", (chance >> 8) % 12)),
            Self::Track => put(format_args!("step-{}", chance % 1000)),
            Self::Checkpoint => {
                for step in 0..=chance % 12 {
                    put(format_args!("{:x}.", mix(chance + step)));
                }
            }
        }
    }
}

/// The time `seconds` after [`EPOCH`], in the API's form.
pub(crate) fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(EPOCH + seconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A well mixed number that follows from `value` alone (the finaliser of splitmix64): events can be made in any order, at any time.
fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A Pod's JSON being written.
#[derive(Default)]
pub(crate) struct Draft {
    text: String,
    slots: Vec<Slot>,
}

impl Draft {
    /// Appends text that is the same in all versions.
    pub(crate) fn raw(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// As [`Draft::raw`], formatted.
    pub(crate) fn put(&mut self, args: fmt::Arguments<'_>) {
        // A String takes everything it is given.
        let _ = self.text.write_fmt(args);
    }

    /// Appends `items`, with commas between them.
    pub(crate) fn each<T>(&mut self, items: impl IntoIterator<Item = T>, mut put: impl FnMut(&mut Self, T)) {
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            put(self, item);
        }
    }

    /// Appends a slot for `part` that shows `first` until an event changes it.
    pub(crate) fn slot(&mut self, part: Part, first: &str) {
        let start = self.text.len() as u32;
        self.text.push_str(first);
        self.slots.push(Slot { start, end: self.text.len() as u32, part });
    }

    pub(crate) fn finish(self) -> Pod {
        Pod { json: self.text.into_boxed_str(), slots: self.slots.into_boxed_slice() }
    }
}
