//! What quotas count: quantities, the requirements of Pods, and the usage of objects. All functions are pure.
//!
//! ```
//! use serde_json::json;
//! use watchkeeper_quota::{Quantity, Resource, usage};
//!
//! let half: Quantity = "500m".parse()?;
//! assert_eq!((half.clone() + half).to_string(), "1");
//!
//! let service = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
//! let used = usage(Resource { group: "", plural: "services" }, &service, jiff::Timestamp::UNIX_EPOCH);
//! assert_eq!(used["services.nodeports"].to_string(), "1");
//! # Ok::<(), watchkeeper_quota::NotAQuantity>(())
//! ```
#![forbid(unsafe_code)]

mod amounts;
mod quantity;
pub mod requirements;
mod scope;
mod usage;

pub use self::amounts::{Amounts, amounts, shown};
pub use self::quantity::{NotAQuantity, Quantity};
pub use self::scope::is_in_scope;
pub use self::usage::{Resource, constraints, covers, usage};
