//! Tokens of service accounts: signed JWTs that are bound to the account, and possibly to an object.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;
use watchkeeper::clock::{Clock, Generator};

use crate::access::rbac::rule::quoted_list;
use crate::access::user::User;
use crate::failure::Failure;
use crate::kinds::cells::text;
use crate::state::core::Core;
use crate::state::store::{Key, Stored};

/// The issuer of tokens, and their audience unless another one is requested.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";

/// How far clocks may differ.
const LEEWAY_SECONDS: i64 = 60;

const EXTRA: &str = "authentication.kubernetes.io";

/// Issues and verifies tokens.
pub(crate) struct Tokens {
    secret: [u8; 32],
    /// Made of the secret when it is first needed, as most servers of tests never need it.
    key: OnceLock<SigningKey>,
    clock: Clock,
    /// The tokens of the server's own admin.
    admins: Mutex<Vec<String>>,
}

/// The key that signs and verifies tokens.
struct SigningKey {
    pair: Ed25519KeyPair,
    /// The name of the key.
    id: String,
}

impl SigningKey {
    fn of(secret: &[u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(secret).expect("any 32 bytes are a key");
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, pair.public_key().as_ref()));
        Self { pair, id }
    }
}

/// The user of a valid token.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) user: User,
    /// The audiences for which the token is valid, of those that were asked for.
    pub(crate) audiences: Vec<String>,
}

/// An object that a token is bound to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bound {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// What a token is issued for.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) account: &'a Stored,
    pub(crate) audiences: Vec<String>,
    pub(crate) seconds: i64,
    /// By kind in lower case: `pod`, `secret` or `node`.
    pub(crate) bound: BTreeMap<&'static str, Bound>,
}

impl Tokens {
    /// The key of a secret.
    pub(crate) fn new(secret: &[u8; 32], clock: &Clock) -> Self {
        Self { secret: *secret, key: OnceLock::new(), clock: clock.clone(), admins: Mutex::default() }
    }

    fn key(&self) -> &SigningKey {
        self.key.get_or_init(|| SigningKey::of(&self.secret))
    }

    /// Adds a token of the server's own admin, under which a listener serves.
    pub(crate) fn trust(&self, token: &str) {
        self.admins.lock().push(token.to_owned());
    }

    /// Issues a token.
    pub(crate) fn issue(&self, request: &Request<'_>, generator: &Generator) -> String {
        let now = self.clock.wall().as_second();
        let (namespace, name) = (&request.account.key.namespace, &request.account.key.name);
        let mut kubernetes = json!({
            "namespace": namespace, "serviceaccount": {"name": name, "uid": request.account.uid}});
        for (kind, Bound { name, uid }) in &request.bound {
            kubernetes[*kind] =
                if uid.is_empty() { json!({"name": name}) } else { json!({"name": name, "uid": uid}) };
        }
        let claims = json!({
            "aud": request.audiences, "exp": now + request.seconds, "iat": now, "iss": ISSUER,
            "jti": generator.uuid(), "kubernetes.io": kubernetes, "nbf": now,
            "sub": User::service_account(namespace, name).name,
        });
        self.sign(&claims)
    }

    fn sign(&self, claims: &Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let SigningKey { pair, id } = self.key();
        let signed = format!("{}.{}", encode(&json!({"alg": "EdDSA", "kid": id})), encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// Returns the user of a token that is valid for one of the audiences; none means the server's own.
    ///
    /// The error is the one that a TokenReview reports.
    pub(crate) fn verify(
        &self,
        core: &Mutex<Core>,
        token: &str,
        audiences: &[String],
    ) -> Result<Verified, String> {
        let own = [ISSUER.to_owned()];
        let wanted = if audiences.is_empty() { &own[..] } else { audiences };
        let is_same = |admin: &String| bool::from(admin.as_bytes().ct_eq(token.as_bytes()));
        if self.admins.lock().iter().any(is_same) {
            return Ok(Verified { user: User::admin(), audiences: wanted.to_vec() });
        }
        let unknown = || "invalid bearer token".to_owned();
        let refused = |why: &str| format!("[invalid bearer token, {why}]");
        let claims = self.claims(token).ok_or_else(unknown)?.map_err(refused)?;
        let now = self.clock.wall().as_second();
        let time = |claim: &str| claims[claim].as_i64().unwrap_or(0);
        match now {
            now if now - LEEWAY_SECONDS > time("exp") => {
                return Err(refused("service account token has expired"));
            }
            now if now + LEEWAY_SECONDS < time("nbf") => {
                return Err(refused("service account token is not valid yet"));
            }
            _ => {}
        }
        let issued: Vec<_> =
            claims["aud"].as_array().into_iter().flatten().map(|it| text(it).to_owned()).collect();
        let common: Vec<_> = wanted.iter().filter(|audience| issued.contains(audience)).cloned().collect();
        if common.is_empty() {
            let (issued, wanted) = (quoted_list(&issued), quoted_list(wanted));
            return Err(refused(&format!(
                "token audiences {issued} is invalid for the target audiences {wanted}"
            )));
        }
        let user = user_of(core, &claims).map_err(|why| refused(&why))?;
        Ok(Verified { user, audiences: common })
    }

    /// Returns the claims of a token of ours; `None` if it is none, an error if its signature is wrong.
    fn claims(&self, token: &str) -> Option<Result<Value, &'static str>> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let parse = |part: &str| serde_json::from_slice::<Value>(&decode(part)?).ok();
        let (head, claims) = (parse(head)?, parse(claims)?);
        if head["alg"] != "EdDSA" || claims["iss"] != ISSUER {
            return None;
        }
        let key = UnparsedPublicKey::new(&ED25519, self.key().pair.public_key());
        let is_valid = key.verify(signed.as_bytes(), &decode(signature)?).is_ok();
        Some(if is_valid { Ok(claims) } else { Err("go-jose/go-jose: error in cryptographic primitive") })
    }

    /// The public key as a JSON Web Key Set.
    pub(crate) fn key_set(&self) -> Value {
        let SigningKey { pair, id } = self.key();
        let public = URL_SAFE_NO_PAD.encode(pair.public_key());
        json!({"keys": [
            {"use": "sig", "kty": "OKP", "crv": "Ed25519", "kid": id, "alg": "EdDSA", "x": public}]})
    }

    /// The discovery document of the issuer.
    pub(crate) fn discovery() -> Value {
        json!({
            "issuer": ISSUER, "jwks_uri": format!("{ISSUER}/openid/v1/jwks"), "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["EdDSA"],
        })
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

/// Returns the user of valid claims, if the account and the object that the token is bound to are still there.
fn user_of(core: &Mutex<Core>, claims: &Value) -> Result<User, String> {
    let own = &claims["kubernetes.io"];
    let namespace = text(&own["namespace"]);
    let core = core.lock();
    let find = |plural: &str, namespace: &str, name: &str| {
        let kind = core.registry.find("", "v1", plural).ok_or_else(Failure::no_such_path)?;
        core.get(kind, &Key::new(namespace, name))
    };
    let account = &own["serviceaccount"];
    let name = text(&account["name"]);
    let stored = find("serviceaccounts", namespace, name).map_err(|failure| failure.message)?;
    if stored.uid != text(&account["uid"]) {
        let (uid, claim) = (&stored.uid, text(&account["uid"]));
        return Err(format!("service account UID ({uid}) does not match claim ({claim})"));
    }
    let mut user = User { uid: stored.uid.clone(), ..User::service_account(namespace, name) };
    let mut extra = |key: &str, value: &str| {
        user.extra.insert(format!("{EXTRA}/{key}"), vec![value.to_owned()]);
    };
    extra("credential-id", &format!("JTI={}", text(&claims["jti"])));
    let is_of_pod = own.get("pod").is_some();
    for (kind, plural) in [("secret", "secrets"), ("pod", "pods"), ("node", "nodes")] {
        let Some(bound) = own.get(kind) else { continue };
        let (name, uid) = (text(&bound["name"]), text(&bound["uid"]));
        // The node of a pod is only for information.
        if kind != "node" || !is_of_pod {
            let namespace = if kind == "node" { "" } else { namespace };
            let found = find(plural, namespace, name)
                .map_err(|_| "service account token has been invalidated".to_owned())?;
            if found.uid != uid {
                let found = &found.uid;
                return Err(format!(
                    "{kind} UID ({found}) does not match service account {kind} ref claim ({uid})"
                ));
            }
        }
        if kind != "secret" {
            extra(&format!("{kind}-name"), name);
            if !uid.is_empty() {
                extra(&format!("{kind}-uid"), uid);
            }
        }
    }
    Ok(user)
}
