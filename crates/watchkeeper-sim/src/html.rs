//! The timeline of a run as one HTML page that needs nothing else.

use std::fmt::Write;

use crate::timeline::{Diff, Lane, Timeline, time};

/// The page of a run that went wrong.
pub(crate) fn page(name: &str, heading: &[(&'static str, String)], timeline: &Timeline) -> String {
    let mut page = String::from(HEAD);
    let _ = write!(page, "<title>{0}</title></head><body><main><h1>{0}</h1><dl>", escaped(name));
    for (label, text) in heading {
        let _ = write!(page, "<dt>{label}</dt><dd>{}</dd>", escaped(text));
    }
    page.push_str("</dl><label><input type=checkbox id=all> show everything</label><table><tbody>");
    for line in &timeline.lines {
        let class = match line.lane {
            Lane::User => "user",
            Lane::Fault => "fault",
            Lane::Saw => "saw",
            Lane::Wrote => "wrote",
            Lane::Life => "life",
            Lane::Outside => "outside",
            Lane::Cluster => "life",
            Lane::Reported => "reported",
        };
        let minor = if line.matters { "" } else { " minor" };
        let _ = write!(
            page,
            "<tr class=\"{class}{minor}\"><td>{}</td><td>{}</td><td>{}</td></tr>",
            time(line.at).trim_start(),
            line.lane.name(),
            escaped(&line.text)
        );
    }
    page.push_str("</tbody></table>");
    for Diff { what, lines } in &timeline.diffs {
        let _ = write!(
            page,
            "<h2>{}</h2><p>expected <b class=minus>-</b>, found <b class=plus>+</b></p><pre>",
            escaped(what)
        );
        for line in lines {
            let class = match line.as_bytes().first() {
                Some(b'-') => "minus",
                Some(b'+') => "plus",
                _ => "same",
            };
            let _ = writeln!(page, "<span class={class}>{}</span>", escaped(line));
        }
        page.push_str("</pre>");
    }
    page.push_str("</main></body></html>\n");
    page
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const HEAD: &str = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<style>
:root { color-scheme: light dark; --line: #8883; --soft: light-dark(#666, #aaa); --fault: light-dark(#b3261e, #ff8a80);
  --user: light-dark(#1a5fd0, #79b0ff); --wrote: light-dark(#1a7f37, #5fd07f); --saw: light-dark(#6a45e0, #b7a3ff); }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; font-family: ui-monospace, monospace; margin-top: 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin-top: 1rem; font: 13px/1.6 ui-monospace, monospace; }
td { padding: .1rem .6rem; border-top: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
td:first-child { text-align: right; color: var(--soft); white-space: nowrap; } td:nth-child(2) { white-space: nowrap; color: var(--soft); }
tr.user td:nth-child(n+2) { color: var(--user); font-weight: 600; } tr.wrote td:last-child { color: var(--wrote); }
tr.saw td:last-child { color: var(--saw); padding-left: 2.5rem; } tr.life td:last-child { color: var(--soft); font-style: italic; }
tr.fault td { background: color-mix(in srgb, var(--fault) 15%, transparent); } tr.fault td:nth-child(n+2) { color: var(--fault); font-weight: 700; }
tr.reported td:last-child { color: var(--fault); }
tr.minor { display: none; } body:has(#all:checked) tr.minor { display: table-row; opacity: .7; }
pre { background: #8881; padding: .8rem 1rem; border-radius: .4rem; overflow-x: auto; line-height: 1.4; }
@media (max-width: 40rem) {
  tr:not(.minor), body:has(#all:checked) tr.minor { display: grid; grid-template-columns: max-content 1fr; border-top: 1px solid var(--line); }
  td { border: 0; } td:first-child { text-align: left; } td:last-child { grid-column: 1 / -1; } tr.saw td:last-child { padding-left: .6rem; }
}
.minus { color: var(--fault); } .plus { color: var(--wrote); } .same { color: var(--soft); }
</style>
"#;
