//! Detection of a list whose pages never end.

use super::error::{ApiError, Class};
use crate::object::ObjectName;

/// Follows the pages of one list. A server, or a proxy that drops the query, may answer every page with the token of
/// another one: such a list would be read forever, and kept in memory.
///
/// Pages are compared with one earlier page, which is replaced each time their number has doubled. So a cycle of any
/// length is found after a few rounds, and no other pages are remembered.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    count: u64,
    empty: u32,
    mark: Mark,
    next_mark: u64,
}

#[derive(Debug, Default)]
struct Mark {
    page: u64,
    token: String,
    first: Option<ObjectName>,
}

/// The permitted number of empty pages in a row: a server that filters after reading its storage sends such pages.
const EMPTY: u32 = 100;

impl Pages {
    /// Records a page that another one follows by `token`, and that begins with the object `first`.
    pub(crate) fn turn(&mut self, token: &str, first: Option<ObjectName>) -> Result<(), ApiError> {
        self.count += 1;
        self.empty = if first.is_none() { self.empty + 1 } else { 0 };
        let (page, mark) = (self.count, &self.mark);
        if mark.page > 0 && mark.token == token {
            return Err(endless(format!("page {page} has the continue token of page {}", mark.page)));
        }
        if let Some(name) = first.as_ref().filter(|_| mark.first == first) {
            return Err(endless(format!("page {page} begins with {name}, as page {} does", mark.page)));
        }
        if self.empty > EMPTY {
            return Err(endless(format!("{} pages in a row have no items", self.empty)));
        }
        if self.count >= self.next_mark {
            self.mark = Mark { page, token: token.to_owned(), first };
            self.next_mark = 2 * self.count;
        }
        Ok(())
    }
}

fn endless(why: String) -> ApiError {
    ApiError::new(Class::Undecodable, format!("the list does not end: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(page: usize) -> Option<ObjectName> {
        Some(ObjectName::cluster(&format!("o{page}")))
    }

    /// Returns after how many pages of `page(number)` a list is given up, and why.
    fn given_up(page: impl Fn(usize) -> (String, Option<ObjectName>)) -> Option<(usize, String)> {
        let mut pages = Pages::default();
        (1..10_000).find_map(|number| {
            let (token, first) = page(number);
            pages.turn(&token, first).err().map(|error| (number, error.to_string()))
        })
    }

    #[test]
    fn a_token_that_comes_again_is_the_end_however_long_the_cycle() {
        let (page, why) = given_up(|page| ("same".into(), first(page))).unwrap();
        assert_eq!(page, 2);
        assert_eq!(why, "the list does not end: page 2 has the continue token of page 1");
        for length in [2, 3, 7, 100] {
            let (page, _) = given_up(|page| (format!("t{}", page % length), first(page))).unwrap();
            assert!(page <= 4 * length, "{page} for {length}");
        }
    }

    #[test]
    fn a_page_that_comes_again_under_another_token_is_the_end() {
        let (page, why) = given_up(|page| (format!("t{page}"), first(1))).unwrap();
        assert_eq!((page, why.as_str()), (2, "the list does not end: page 2 begins with o1, as page 1 does"));
        assert!(given_up(|page| (format!("t{page}"), first(page % 5))).is_some());
    }

    #[test]
    fn a_hundred_pages_without_items_are_borne_and_no_more() {
        let nothing = |page: usize| (format!("t{page}"), None);
        assert_eq!(given_up(nothing).unwrap().0, 101);
        let (_, why) = given_up(nothing).unwrap();
        assert_eq!(why, "the list does not end: 101 pages in a row have no items");
        let filtered = |page: usize| (format!("t{page}"), first(page).filter(|_| page.is_multiple_of(100)));
        assert_eq!(given_up(filtered), None);
    }

    #[test]
    fn a_long_list_comes_to_its_end() {
        assert_eq!(given_up(|page| (format!("t{page}"), first(page))), None);
    }
}
