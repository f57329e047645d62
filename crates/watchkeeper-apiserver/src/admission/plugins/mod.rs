//! The plugins, one file each, named as on the real server. A plugin names the resources that it is about.

pub(super) mod priority;
