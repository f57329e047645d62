//! Typed objects of one kind, apart from those that do not fit their type.

use std::fmt;

use super::cached::DecodeError;

/// The outcome of a typed list: one object that does not fit its type takes none of the others away.
///
/// The caller chooses what becomes of unreadable objects: [`complete`](Self::complete) makes them an error,
/// [`ignore_unreadable`](Self::ignore_unreadable) drops them, and [`into_parts`](Self::into_parts) gives both.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::Object;
/// use watchkeeper::object::Listing;
///
/// let objects = [r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"b"},"data":7}"#];
/// let listing = || -> Result<Listing<_>, watchkeeper::object::IdentityError> {
///     let objects = objects.iter().map(|json| Object::<ConfigMap>::from_json(json.as_bytes()));
///     Ok(objects.collect::<Result<Vec<_>, _>>()?.iter().map(Object::get).collect())
/// };
/// assert_eq!(listing()?.ignore_unreadable().len(), 1);
/// let (maps, unreadable) = listing()?.into_parts();
/// assert_eq!((maps.len(), unreadable[0].key.to_string()), (1, "b".to_owned()));
/// let error = listing()?.complete().unwrap_err();
/// assert_eq!(error.to_string(), "cannot decode 1 of 2 objects: b");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "say what becomes of unreadable objects: `complete`, `ignore_unreadable` or `into_parts`"]
pub struct Listing<T> {
    readable: Vec<T>,
    unreadable: Vec<DecodeError>,
}

impl<T> Listing<T> {
    /// Returns the decoded objects, and the errors of the others.
    pub fn into_parts(self) -> (Vec<T>, Vec<DecodeError>) {
        (self.readable, self.unreadable)
    }

    /// Returns all objects, for a caller that must not act on a part of them.
    ///
    /// # Errors
    ///
    /// At least one object does not fit its type; the error names them all.
    pub fn complete(self) -> Result<Vec<T>, Unreadable> {
        if self.unreadable.is_empty() {
            return Ok(self.readable);
        }
        let listed = self.readable.len() + self.unreadable.len();
        Err(Unreadable { objects: self.unreadable, listed })
    }

    /// Returns the decoded objects and drops the others.
    pub fn ignore_unreadable(self) -> Vec<T> {
        self.readable
    }
}

impl<T> FromIterator<Result<T, DecodeError>> for Listing<T> {
    fn from_iter<I: IntoIterator<Item = Result<T, DecodeError>>>(results: I) -> Self {
        let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(object) => readable.push(object),
                Err(error) => unreadable.push(error),
            }
        }
        Self { readable, unreadable }
    }
}

/// Objects of a list that do not fit their type.
#[derive(Debug)]
pub struct Unreadable {
    /// The decode error of each of them; never empty.
    pub objects: Vec<DecodeError>,
    /// The number of objects in the whole list.
    pub listed: usize,
}

/// The number of objects that the text of an [`Unreadable`] names.
const NAMED: usize = 5;

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot decode {} of {} objects: ", self.objects.len(), self.listed)?;
        for (index, error) in self.objects.iter().take(NAMED).enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, error.key)?;
        }
        match self.objects.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl std::error::Error for Unreadable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.objects.first().map(|error| error as _)
    }
}
