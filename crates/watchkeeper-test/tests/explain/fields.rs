//! The fields of the views, as `docs/explain-fields.md` lists them: none may be renamed or removed.

use serde::Serialize;
use watchkeeper::explain::{
    BucketView, CAUSES, ChildView, ControllerView, DegradedView, ErrorView, Explanation, HandlerView,
    HistogramView, InformerSummary, InformerView, KeyCounts, KeyState, KeySummary, KeyView, KeysPage,
    KindView, LeaderView, Level, OutcomeView, Overview, PendingWriteView, ProgramPhase, RelatedView,
    TimelineEntry, TimelineKind, Verdict, VersionsView, ViewRelation,
};

use crate::page;

/// The fields of a section of the page, in alphabetical order.
fn listed(section: &str) -> Vec<String> {
    let page = page("explain-fields.md");
    let heading = format!("## {section}\n");
    let (_, rest) = page.split_once(&heading).unwrap_or_else(|| panic!("there is no section {section}"));
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let mut fields: Vec<_> = rows.map(|(field, _)| field.to_owned()).collect();
    fields.sort();
    fields
}

/// The fields of a view, in alphabetical order, after the name of its type.
fn fields<T: Serialize + Default>() -> (&'static str, Vec<String>) {
    let name = std::any::type_name::<T>().rsplit("::").next().unwrap();
    let view = serde_json::to_value(T::default()).unwrap();
    (name, view.as_object().unwrap().keys().cloned().collect())
}

#[test]
fn the_page_lists_the_fields_of_every_view() {
    let views = [
        fields::<Overview>(),
        fields::<ControllerView>(),
        fields::<LeaderView>(),
        fields::<KindView>(),
        fields::<RelatedView>(),
        fields::<KeyCounts>(),
        fields::<HistogramView>(),
        fields::<BucketView>(),
        fields::<InformerSummary>(),
        fields::<KeysPage>(),
        fields::<KeySummary>(),
        fields::<Explanation>(),
        fields::<Verdict>(),
        fields::<KeyView>(),
        fields::<ErrorView>(),
        fields::<OutcomeView>(),
        fields::<VersionsView>(),
        fields::<PendingWriteView>(),
        fields::<TimelineEntry>(),
        fields::<ChildView>(),
        fields::<InformerView>(),
        fields::<DegradedView>(),
        fields::<HandlerView>(),
    ];
    for (name, mut fields) in views {
        fields.sort();
        assert_eq!(fields, listed(name), "the fields of {name}");
    }
}

#[test]
fn the_page_lists_the_words_of_every_list() {
    fn word(value: impl Serialize) -> String {
        serde_json::to_value(value).unwrap().as_str().unwrap().to_owned()
    }
    let words: [(&str, Vec<String>); 5] = [
        (
            "ProgramPhase",
            [ProgramPhase::Starting, ProgramPhase::Standby, ProgramPhase::Running, ProgramPhase::Stopping]
                .map(word)
                .to_vec(),
        ),
        ("KeyState", KeyState::ALL.map(word).to_vec()),
        ("Level", [Level::Ok, Level::Pending, Level::Notice, Level::Problem].map(word).to_vec()),
        (
            "ViewRelation",
            [ViewRelation::Itself, ViewRelation::Owner, ViewRelation::Mapping].map(word).to_vec(),
        ),
        (
            "TimelineKind",
            [
                TimelineKind::Trigger,
                TimelineKind::Run,
                TimelineKind::Error,
                TimelineKind::Write,
                TimelineKind::Event,
                TimelineKind::Due,
            ]
            .map(word)
            .to_vec(),
        ),
    ];
    let page = page("explain-fields.md");
    for (name, words) in words {
        let row = format!("| `{name}` | `{}` |", words.join("`, `"));
        assert!(page.contains(&row), "the page lacks {row}");
    }
}

#[test]
fn the_page_lists_the_words_of_causes() {
    let mut causes = CAUSES.map(str::to_owned).to_vec();
    causes.sort();
    assert_eq!(causes, listed("Causes"));
}
