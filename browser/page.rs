//! The admin page in Chromium: every view with few and many keys, in light and dark colours, narrow and wide.
//!
//! Without a browser it says so, and does nothing else; `WATCHKEEPER_TEST_BROWSER=required` makes that a failure.
//! `WATCHKEEPER_TEST_AXE` names the script of axe-core, and `WATCHKEEPER_TEST_SCREENSHOTS` a folder for pictures.

mod chromium;
#[path = "../crates/watchkeeper/tests/page/invented.rs"]
mod invented;
mod real;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::Env;
use watchkeeper::explain::ExplainSource;
use watchkeeper::process::{AdminAddress, AdminServer, Pages};

use self::chromium::{Browser, Look};
use self::invented::Invented;
use self::real::Real;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// A view: the name of its pictures, its path, and what it must show.
const VIEWS: [(&str, &str, &[&str]); 4] = [
    (
        "overview",
        "/",
        &[
            "4 things need attention",
            "websites",
            "certificates",
            "Reconcile time",
            "website-operator-7d9c-x2k4",
        ],
    ),
    ("controller", "/controllers/websites", &["websites", "Retrying", "bakery/site-000000", "Next try"]),
    (
        "key",
        "/explain?kind=Website&key=tailor/site-000003",
        &["tailor/site-000003", "will be retried in", "Timeline", "Secret", "tailor/site-000003-tls"],
    ),
    ("informers", "/informers", &["websites.example.com", "Watching", "403 Forbidden", "expired"]),
];

const LOOKS: [Look; 4] = [
    Look { width: 1_280, is_dark: false },
    Look { width: 1_280, is_dark: true },
    Look { width: 390, is_dark: false },
    Look { width: 390, is_dark: true },
];

/// A view of the real program with 100,000 keys: its path, what it must show, and the most that its first paint may cost
/// the server.
const MEASURED: [(&str, &str, Duration); 5] = [
    ("/", "websites", Duration::from_millis(200)),
    ("/controllers/websites", "1 to 50 of 100,000 keys", Duration::from_millis(1_000)),
    ("/controllers/websites?sort=failures", "1 to 50 of 100,000 keys", Duration::from_millis(1_000)),
    ("/controllers/websites?q=site-099999", "1 to 1 of 1 key", Duration::from_millis(1_000)),
    ("/explain?kind=ConfigMap&key=bakery/site-099990", "is reconciled", Duration::from_millis(200)),
];

fn main() -> Outcome {
    let is_required = std::env::var("WATCHKEEPER_TEST_BROWSER").is_ok_and(|value| value == "required");
    if let Err(missing) = chromium::programs() {
        if is_required {
            return Err(missing.into());
        }
        println!("the page is not tested in a browser: {missing}");
        return Ok(());
    }
    let axe = match std::env::var_os("WATCHKEEPER_TEST_AXE") {
        Some(path) => Some(std::fs::read_to_string(PathBuf::from(path))?),
        None => {
            println!(
                "accessibility is not checked: WATCHKEEPER_TEST_AXE does not name the script of axe-core"
            );
            None
        }
    };
    tokio::runtime::Runtime::new()?.block_on(test(axe.as_deref()))
}

async fn test(axe: Option<&str>) -> Outcome {
    let browser = Browser::start().await?;
    let outcome = views(&browser, axe).await;
    browser.quit().await?;
    outcome
}

async fn views(browser: &Browser, axe: Option<&str>) -> Outcome {
    let pictures = match std::env::var_os("WATCHKEEPER_TEST_SCREENSHOTS") {
        Some(folder) => PathBuf::from(folder),
        None => std::env::temp_dir().join("watchkeeper-page"),
    };
    std::fs::create_dir_all(&pictures)?;
    let env = Env::system();
    let program = Real::start(100_000, &env).await?;
    let real = Served::program(Arc::new(program.explain.clone()), &env).await?;
    for (path, text, most) in MEASURED {
        let what = format!("the first paint of {path}");
        costs(browser, &real, path, most).await.map_err(|error| format!("{what}: {error}"))?;
        shows(browser, &[text]).await.map_err(|error| format!("{what}: {error}"))?;
    }
    real.stop().await?;
    drop(program);
    for keys in [10, 100_000] {
        let served = Served::new(keys).await?;
        for look in LOOKS {
            browser.look(look).await?;
            for (name, path, texts) in VIEWS {
                let what = format!("{name}-{keys}-{}{}", look.width, if look.is_dark { "-dark" } else { "" });
                browser.open(&served.url(path)).await?;
                shows(browser, texts).await.map_err(|error| format!("{what}: {error}"))?;
                stays_at_home(browser, &served).await.map_err(|error| format!("{what}: {error}"))?;
                if let Some(axe) = axe {
                    accessible(browser, axe).await.map_err(|error| format!("{what}: {error}"))?;
                }
                browser.picture(&pictures.join(format!("{what}.png"))).await?;
            }
        }
        browser.look(LOOKS[0]).await?;
        lives(browser, &served).await?;
        finds(browser, &served, keys).await?;
        acts(browser, &served).await?;
        is_static_without_scripts(browser, &served).await?;
        served.stop().await?;
    }
    println!("all views are as they should be; pictures are in {}", pictures.display());
    Ok(())
}

/// The page of an invented program.
struct Served {
    address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl Served {
    async fn new(keys: usize) -> Outcome<Self> {
        let env = Env::system();
        Self::program(Arc::new(Invented::new(keys, &env)), &env).await
    }

    async fn program(program: Arc<dyn ExplainSource>, env: &Env) -> Outcome<Self> {
        let mut pages = Pages::default();
        (pages.explain, pages.actions) = (Some(program), true);
        let address = AdminAddress::At(SocketAddr::from(([127, 0, 0, 1], 0)));
        let server = AdminServer::bind(address, pages, env).await?;
        let (address, stop) = (server.address().ok_or("no address")?, CancellationToken::new());
        let served = tokio::spawn(server.run(stop.clone()));
        Ok(Self { address, stop, served })
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn stop(self) -> Outcome {
        self.stop.cancel();
        Ok(self.served.await?)
    }
}

/// A view is painted, and costs no more than `most`.
async fn costs(browser: &Browser, served: &Served, path: &str, most: Duration) -> Outcome {
    // What the page before it still costs does not count.
    browser.open("about:blank").await?;
    let before = processor_time();
    browser.open(&served.url(path)).await?;
    let used = processor_time() - before;
    println!("the first paint of {path} took {used:?} of the server's processor");
    if used > most {
        return Err(format!("it took {used:?}: more than {most:?}").into());
    }
    Ok(())
}

/// The processor time of this process: that of the server, and a little of the test.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// All texts are there, and nothing is wider than the window.
async fn shows(browser: &Browser, texts: &[&str]) -> Outcome {
    let shown = browser.run("return document.body.innerText", json!([])).await?;
    let shown = shown.as_str().unwrap_or_default();
    for text in texts {
        if !shown.contains(text) {
            return Err(format!("{text:?} is not shown: {shown}").into());
        }
    }
    let excess = browser.run("return document.documentElement.scrollWidth - innerWidth", json!([])).await?;
    if excess.as_i64().unwrap_or(1) > 0 {
        return Err(format!("the page is {excess} pixels too wide").into());
    }
    Ok(())
}

/// Nothing was asked of another server, and nothing was against the policy.
async fn stays_at_home(browser: &Browser, served: &Served) -> Outcome {
    let asked = browser
        .run("return performance.getEntriesByType('resource').map(entry => entry.name)", json!([]))
        .await?;
    let home = served.url("/");
    for name in asked.as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !name.starts_with(&home) {
            return Err(format!("{name} was asked for").into());
        }
    }
    match browser.run("return window.violations", json!([])).await? {
        Value::Array(none) if none.is_empty() => Ok(()),
        violations => Err(format!("against the policy: {violations}").into()),
    }
}

/// Nothing serious is found by axe-core.
async fn accessible(browser: &Browser, axe: &str) -> Outcome {
    let script = format!(
        "{axe}; return axe.run(document, {{resultTypes: ['violations']}}).then(found => found.violations
            .filter(each => ['serious', 'critical'].includes(each.impact))
            .map(each => each.id + ': ' + each.nodes.map(node => node.html + ' ' + node.failureSummary).join('; ')))"
    );
    match browser.run(&script, json!([])).await? {
        Value::Array(none) if none.is_empty() => Ok(()),
        found => Err(format!("axe-core found {found:#}").into()),
    }
}

/// Updates arrive, and leave the focus where it is.
async fn lives(browser: &Browser, served: &Served) -> Outcome {
    browser.open(&served.url("/controllers/websites")).await?;
    let script = "
        const done = arguments[arguments.length - 1];
        const pulse = document.querySelector('.pulse');
        const link = document.querySelector('tbody a');
        link.focus();
        document.getElementById('q').value = 'typed';
        const before = document.querySelector('time[data-ago]').dateTime;
        const look = () => {
            const time = document.querySelector('time[data-ago]');
            if (pulse.textContent !== 'Live' || time.dateTime === before) return;
            observer.disconnect();
            done([document.activeElement === link && link.isConnected, document.getElementById('q').value]);
        };
        const observer = new MutationObserver(look);
        observer.observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});";
    let seen = browser.wait(script).await?;
    if seen != json!([true, "typed"]) {
        return Err(format!("after an update, the focus and the text of the search are {seen}").into());
    }
    Ok(())
}

/// Search and sort lead to the keys.
async fn finds(browser: &Browser, served: &Served, keys: usize) -> Outcome {
    let last = format!("site-{:06}", keys - 1);
    browser.open(&served.url("/controllers/websites")).await?;
    browser.submit("q", &last).await?;
    shows(browser, &["1 to 1 of 1 key", &last]).await?;
    browser.open(&served.url("/controllers/websites")).await?;
    browser.follow("Failures").await?;
    let order = browser.run("return document.querySelector('th[aria-sort]').innerText + document.querySelector('th[aria-sort]').ariaSort", json!([])).await?;
    if order != json!("Failures ↓descending") {
        return Err(format!("sorted by {order}").into());
    }
    Ok(())
}

/// A person can have an object reconciled, with the keyboard, and is led back to it.
async fn acts(browser: &Browser, served: &Served) -> Outcome {
    let (_, path, texts) = VIEWS[2];
    browser.open(&served.url(path)).await?;
    browser.press("form.action button").await?;
    shows(browser, texts).await?;
    let at = browser.run("return location.pathname + location.search", json!([])).await?;
    if at != json!("/explain?kind=websites.example.com&key=tailor%2Fsite-000003") {
        return Err(format!("after the request, the page is {at}").into());
    }
    stays_at_home(browser, served).await
}

/// The page can be read without scripts.
async fn is_static_without_scripts(browser: &Browser, served: &Served) -> Outcome {
    browser.scripts(false).await?;
    for (name, path, texts) in VIEWS {
        browser.open(&served.url(path)).await?;
        let shown = browser.text().await?;
        for text in texts.iter().chain(&["As of "]) {
            if !shown.contains(text) {
                return Err(format!("{name} without scripts does not show {text:?}: {shown}").into());
            }
        }
    }
    browser.scripts(true).await
}
