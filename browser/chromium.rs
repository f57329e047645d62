//! Chromium, driven through chromedriver.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::prelude::*;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::Outcome;

/// The flags of a browser that asks nobody for anything by itself.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// The size and colours of the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) width: u32,
    pub(super) is_dark: bool,
}

/// A browser with its driver, which ends with it.
pub(super) struct Browser {
    web: WebDriver,
    _driver: Child,
    _profile: TempDir,
}

/// Returns the paths of the browser and of its driver, or what is missing.
pub(super) fn programs() -> Result<(PathBuf, PathBuf), String> {
    let find = |names: &[&str]| {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&folders)
            .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
            .find(|path| path.is_file());
        found
            .ok_or_else(|| format!("{} is not installed: apt-get install chromium chromium-driver", names[0]))
    };
    Ok((find(&["chromium", "chromium-browser", "google-chrome"])?, find(&["chromedriver"])?))
}

impl Browser {
    pub(super) async fn start() -> Outcome<Self> {
        let (chromium, driver) = programs()?;
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(driver.stdout.take().ok_or("no output")?).lines();
        let port = loop {
            let line = lines.next_line().await?.ok_or("chromedriver ended")?;
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        // What else it says is not read; it must not be blocked by that.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let profile = TempDir::new()?;
        let mut wanted = DesiredCapabilities::chrome();
        wanted.set_binary(&chromium.to_string_lossy())?;
        for flag in FLAGS {
            wanted.add_arg(flag)?;
        }
        wanted.add_arg(&format!("--user-data-dir={}", profile.path().display()))?;
        let web = WebDriver::new(format!("http://127.0.0.1:{port}"), wanted).await?;
        let browser = Self { web, _driver: driver, _profile: profile };
        let listen = "window.violations = []; addEventListener('securitypolicyviolation', event => \
                      window.violations.push(event.violatedDirective + ' ' + event.blockedURI))";
        browser.tell("Page.addScriptToEvaluateOnNewDocument", json!({"source": listen})).await?;
        Ok(browser)
    }

    pub(super) async fn quit(self) -> Outcome {
        Ok(self.web.quit().await?)
    }

    pub(super) async fn look(&self, look: Look) -> Outcome {
        let Look { width, is_dark } = look;
        let metrics = json!({"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500});
        self.tell("Emulation.setDeviceMetricsOverride", metrics).await?;
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.tell("Emulation.setEmulatedMedia", features).await
    }

    /// Turns scripts of pages on and off.
    pub(super) async fn scripts(&self, is_on: bool) -> Outcome {
        self.tell("Emulation.setScriptExecutionDisabled", json!({"value": !is_on})).await
    }

    async fn tell(&self, method: &str, parameters: Value) -> Outcome {
        self.web.cdp().send_raw(method, parameters).await?;
        Ok(())
    }

    /// Opens a page, and waits until it is loaded.
    pub(super) async fn open(&self, url: &str) -> Outcome {
        Ok(self.web.goto(url).await?)
    }

    /// Runs a script, and returns its result.
    pub(super) async fn run(&self, script: &str, arguments: Value) -> Outcome<Value> {
        let arguments = arguments.as_array().cloned().unwrap_or_default();
        Ok(self.web.execute(script, arguments).await?.json().clone())
    }

    /// Runs a script, and waits until it calls its last argument.
    pub(super) async fn wait(&self, script: &str) -> Outcome<Value> {
        Ok(self.web.execute_async(script, Vec::new()).await?.json().clone())
    }

    /// Returns what the page shows, without a script.
    pub(super) async fn text(&self) -> Outcome<String> {
        Ok(self.web.find(By::Tag("body")).await?.text().await?)
    }

    /// Types into a field, and sends its form with the keyboard.
    pub(super) async fn submit(&self, id: &str, text: &str) -> Outcome {
        let field = self.web.find(By::Id(id)).await?;
        field.send_keys(text).await?;
        self.enter(field).await
    }

    /// Presses a button, which leads to another page, with the keyboard.
    pub(super) async fn press(&self, selector: &str) -> Outcome {
        self.enter(self.web.find(By::Css(selector)).await?).await
    }

    /// Presses Enter on an element, and waits until its page is gone.
    async fn enter(&self, element: WebElement) -> Outcome {
        let page = self.web.find(By::Tag("html")).await?;
        element.send_keys(Key::Enter).await?;
        Ok(page.wait_until().stale().await?)
    }

    /// Follows a link.
    pub(super) async fn follow(&self, text: &str) -> Outcome {
        Ok(self.web.find(By::LinkText(text)).await?.click().await?)
    }

    /// Takes a picture of the whole page, up to a height.
    pub(super) async fn picture(&self, path: &Path) -> Outcome {
        Ok(self.web.screenshot(path).await?)
    }
}
