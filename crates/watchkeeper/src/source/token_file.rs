//! Tokens from a file, which is read again regularly because it is rotated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io};

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use kube_client::client::AuthError;
use kube_client::config::AuthInfo;

use crate::clock::Clock;

/// The time after which a file is read again: client-go's minute, less its ten seconds of leeway.
const FRESH: Duration = Duration::from_secs(50);

/// Returns the file of the token, unless a credential with precedence is set.
pub(super) fn token_file(user: &AuthInfo) -> Option<&str> {
    let is_basic = user.username.is_some() && user.password.is_some();
    let is_first = user.auth_provider.is_none() && user.token.is_none() && !is_basic;
    user.token_file.as_deref().filter(|_| is_first)
}

/// Adds the token in `file` to requests. The first read must succeed; later, the last token is kept if the file cannot
/// be read. `refused` triggers an early read after a server has refused the token.
///
/// kube's own layer keeps a line break at the end of the file as part of the token.
pub(super) fn with_token<B>(
    file: &str,
    clock: &Clock,
    refused: &Arc<AtomicBool>,
) -> Result<impl FnMut(Request<B>) -> Request<B> + Clone + use<B>, AuthError> {
    let (file, clock, refused) = (file.to_owned(), clock.clone(), refused.clone());
    let (mut header, mut read_at) = (bearer(&file)?, clock.now());
    Ok(move |mut request: Request<B>| {
        if refused.swap(false, Ordering::Relaxed) || clock.now() >= read_at + FRESH {
            header = bearer(&file).unwrap_or_else(|_| header.clone());
            read_at = clock.now();
        }
        request.headers_mut().insert(AUTHORIZATION, header.clone());
        request
    })
}

/// Records in `refused` that a server refused the token of a request.
pub(super) fn noting<B>(refused: Arc<AtomicBool>) -> impl FnMut(Response<B>) -> Response<B> + Clone {
    move |answer| {
        if answer.status() == StatusCode::UNAUTHORIZED {
            refused.store(true, Ordering::Relaxed);
        }
        answer
    }
}

fn bearer(file: &str) -> Result<HeaderValue, AuthError> {
    let unreadable = |error| AuthError::ReadTokenFile(error, file.into());
    let text = fs::read_to_string(file).map_err(unreadable)?;
    let token = text.trim();
    if token.is_empty() {
        return Err(unreadable(io::Error::other("it is empty")));
    }
    let mut header =
        HeaderValue::try_from(format!("Bearer {token}")).map_err(AuthError::InvalidBearerToken)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::env::Env;

    #[tokio::test(start_paused = true)]
    async fn a_file_is_trimmed_and_read_again_and_the_last_token_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let file = path.to_str().unwrap();
        let (clock, refused) = (Env::simulated(1).clock, Arc::default());
        assert!(with_token::<()>(file, &clock, &refused).is_err(), "there is no file");
        for bad in [" \n", "a\nb"] {
            fs::write(file, bad).unwrap();
            assert!(with_token::<()>(file, &clock, &refused).is_err(), "{bad:?}");
        }

        fs::write(file, " one\r\n").unwrap();
        let mut put = with_token(file, &clock, &refused).unwrap();
        let mut sent = || put(Request::new(())).headers()[AUTHORIZATION].clone();
        assert_eq!(sent(), "Bearer one");
        assert!(sent().is_sensitive());
        fs::write(file, "two\n").unwrap();
        advance(Duration::from_secs(49)).await;
        assert_eq!(sent(), "Bearer one");
        advance(Duration::from_secs(1)).await;
        assert_eq!(sent(), "Bearer two");
        fs::remove_file(file).unwrap();
        advance(Duration::from_secs(60)).await;
        assert_eq!(sent(), "Bearer two");
    }
}
