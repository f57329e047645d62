//! Pages of a list, as frames that are produced on demand.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::options::Continue;
use super::world::{Stage, World};

/// How many bytes a frame of a list or watch has, give or take an object: enough for few system calls, little enough to stay in the
/// processor's cache until the socket has them.
pub(super) const FRAME: usize = 128 * 1024;

/// A page on its way out.
pub(super) struct Page {
    world: Arc<World>,
    stage: Stage,
    head: Option<String>,
    items: Range<usize>,
    ended: bool,
}

impl Page {
    /// The page of at most `limit` Pods (0: all) from `start` on, at that stage.
    pub(super) fn new(world: Arc<World>, stage: Stage, start: usize, limit: usize) -> Self {
        let (start, count) = (start.min(world.len()), world.len());
        let end = if limit == 0 { count } else { start.saturating_add(limit).min(count) };
        let resource_version = world.list_version(&stage);
        let rest = if end < count {
            let token = Continue { resource_version, start: end }.token();
            format!(r#","continue":"{token}","remainingItemCount":{}"#, count - end)
        } else {
            String::new()
        };
        let head = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{resource_version}"{rest}}},"items":["#
        );
        Self { world, stage, head: Some(head), items: start..end, ended: false }
    }

    /// The next frame; `None` after the last.
    pub(super) fn frame(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut out = Vec::with_capacity(FRAME + FRAME / 4);
        let mut first = false;
        if let Some(head) = self.head.take() {
            out.extend_from_slice(head.as_bytes());
            first = true;
        }
        while out.len() < FRAME {
            let Some(index) = self.items.next() else {
                out.extend_from_slice(b"]}\n");
                self.ended = true;
                break;
            };
            if !first {
                out.push(b',');
            }
            first = false;
            self.world.write_item(&mut out, index, &self.stage);
        }
        Some(out.into())
    }
}
