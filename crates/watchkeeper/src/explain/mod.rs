//! Why an object is or is not reconciled: the state of controllers, keys and informers, to serve and to print.
//!
//! An [`Explain`] collects what a program has: `explained.rs` and `watched.rs` its controllers and informers. It answers
//! through [`ExplainSource`] (`source.rs`), with the views of `view.rs` and `key_view.rs`, which are served as JSON under
//! `/debug`. `facts.rs` is what is known of one object, and `verdict/` turns that into sentences; `timeline.rs` and
//! `children.rs` have what happened to it, and what it controls.

mod children;
mod controllers;
mod explained;
mod explanation;
mod facts;
mod informers;
mod key_view;
mod keys;
mod nearest;
mod program;
mod query;
mod record;
mod source;
mod timeline;
mod verdict;
mod view;
mod watched;
mod words;

pub(crate) use explained::Runs;
pub use explained::{Explained, OpenWrites};
pub use facts::{PastWrite, PendingWrite};
pub use key_view::{
    ChildView, ErrorView, Explanation, KeyView, Level, OutcomeView, PendingWriteView, TimelineEntry,
    TimelineKind, Verdict, VersionsView, ViewRelation,
};
pub use program::Explain;
pub use query::{ExplainError, KeySort, KeysQuery};
pub use source::ExplainSource;
pub use verdict::CAUSES;
pub use view::{
    BucketView, ControllerView, DegradedView, HandlerView, HistogramView, InformerSummary, InformerView,
    KeyCounts, KeySummary, KeysPage, KindView, LeaderView, Overview, ProgramPhase, RelatedView,
};
pub(crate) use watched::{AnyWatched, CONTROLLER_INDEX, Mapping, Watched};

pub use crate::workqueue::KeyState;
