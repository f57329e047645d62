//! The choice of the next ready key: the first of the highest priority, or of one that was overtaken often enough.

use super::priority::Priority;
use super::slots::{List, Number, Slots};
use super::tick::Tick;

/// The number of keys that may overtake a priority before it has its turn.
const PATIENCE: u32 = 10;

/// The slots that wait for a worker, each once, under the priority in the slot.
pub(super) struct Ready {
    /// Indexed by priority.
    classes: [Class; Priority::ALL.len()],
}

struct Class {
    list: List,
    /// The number of keys of higher priorities that were handed out since this one last had its turn or was empty.
    passed_over: u32,
}

impl Ready {
    pub(super) fn new() -> Self {
        Self { classes: [const { Class { list: List::EMPTY, passed_over: 0 } }; Priority::ALL.len()] }
    }

    pub(super) fn len(&self) -> usize {
        self.classes.iter().map(|class| class.list.len()).sum()
    }

    /// Returns the number of keys that wait with this priority.
    pub(super) fn depth(&self, priority: Priority) -> usize {
        self.classes[priority as usize].list.len()
    }

    /// Returns the time since which the slot has been ready that has been for longest.
    pub(super) fn oldest<T>(&self, slots: &Slots<T>) -> Option<Tick> {
        let firsts = self.classes.iter().filter_map(|class| class.list.first());
        firsts.filter_map(|number| slots[number].added).min()
    }

    /// Returns the number of slots before a ready one: those of higher priorities, and the earlier ones of its own.
    pub(super) fn before<T>(&self, slots: &Slots<T>, number: Number) -> usize {
        let own = slots[number].priority;
        let higher = Priority::ALL.into_iter().filter(|priority| *priority > own);
        let list = &self.classes[own as usize].list;
        let earlier = list.iter(slots).position(|slot| std::ptr::eq(slot, &raw const slots[number]));
        higher.map(|priority| self.depth(priority)).sum::<usize>() + earlier.unwrap_or(0)
    }

    pub(super) fn push<T>(&mut self, slots: &mut Slots<T>, number: Number) {
        let priority = slots[number].priority;
        self.classes[priority as usize].list.push(slots, number);
    }

    /// Moves a waiting slot to the end of a higher priority; a lower one changes nothing.
    pub(super) fn raise<T>(&mut self, slots: &mut Slots<T>, number: Number, priority: Priority) {
        let old = slots[number].priority;
        if priority > old {
            self.classes[old as usize].list.remove(slots, number);
            slots[number].priority = priority;
            self.push(slots, number);
        }
    }

    pub(super) fn pop<T>(&mut self, slots: &mut Slots<T>) -> Option<Number> {
        let is_next = |class: &Class| !class.list.is_empty();
        let has_aged = |class: &Class| is_next(class) && class.passed_over >= PATIENCE;
        let aged = self.classes.iter().rposition(has_aged);
        let turn = aged.or_else(|| self.classes.iter().rposition(is_next))?;
        let (lower, rest) = self.classes.split_at_mut(turn);
        for class in lower {
            class.passed_over = if class.list.is_empty() { 0 } else { class.passed_over + 1 };
        }
        rest[0].passed_over = 0;
        let number = rest[0].list.first()?;
        rest[0].list.remove(slots, number);
        Some(number)
    }
}

#[cfg(test)]
mod tests;
