//! What is simulated: a program and a story, with the types of the author erased.

use std::marker::PhantomData;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use watchkeeper::Client;
use watchkeeper::controller::{Manager, ManagerHandle, SetupError};
use watchkeeper::report::WithCauses;

use crate::outside::Outside;
use crate::user::User;

/// One life of a program: from its start to its crash or stop.
#[derive(Clone, Debug)]
pub struct Life {
    /// The program's client, through the simulated network.
    pub client: Client,
    /// Cancelled when the program is to stop gracefully, at the end of the run.
    pub stop: CancellationToken,
    /// The number of the replica, from 0.
    pub replica: usize,
    pub(crate) handle: Arc<Mutex<Option<ManagerHandle>>>,
}

/// What is simulated, for any number of runs.
pub(crate) trait Subject: Send + Sync + 'static {
    fn begin(&self, outside: &Outside) -> Box<dyn Actors + '_>;
}

/// The program and the story of one run.
pub(crate) trait Actors {
    /// Runs one life of the program; an error says why it ended early.
    fn live(&self, life: Life) -> LocalBoxFuture<'_, Result<(), String>>;

    fn tell<'a>(&'a self, user: &'a User) -> LocalBoxFuture<'a, ()>;
}

/// An operator that a manager runs.
pub(crate) struct Operator<W, R, S, E> {
    pub(crate) outside: W,
    pub(crate) register: R,
    pub(crate) story: S,
    pub(crate) external: PhantomData<fn() -> E>,
}

impl<W, R, S, E> Subject for Operator<W, R, S, E>
where
    W: Fn(&Outside) -> E + Send + Sync + 'static,
    R: Fn(&mut Manager, &E) -> Result<(), SetupError> + Send + Sync + 'static,
    S: AsyncFn(&User) + Send + Sync + 'static,
    E: 'static,
{
    fn begin(&self, outside: &Outside) -> Box<dyn Actors + '_> {
        Box::new(OperatorActors { subject: self, external: (self.outside)(outside) })
    }
}

struct OperatorActors<'a, W, R, S, E> {
    subject: &'a Operator<W, R, S, E>,
    external: E,
}

impl<W, R, S, E> Actors for OperatorActors<'_, W, R, S, E>
where
    R: Fn(&mut Manager, &E) -> Result<(), SetupError>,
    S: AsyncFn(&User),
{
    fn live(&self, life: Life) -> LocalBoxFuture<'_, Result<(), String>> {
        async move {
            let mut manager = Manager::builder("operator", &life.client).build();
            (self.subject.register)(&mut manager, &self.external)
                .map_err(|error| format!("cannot register: {}", WithCauses(&error)))?;
            *life.handle.lock() = Some(manager.handle());
            manager.run(life.stop).await.map_err(|error| WithCauses(&error).to_string())
        }
        .boxed_local()
    }

    fn tell<'a>(&'a self, user: &'a User) -> LocalBoxFuture<'a, ()> {
        (self.subject.story)(user).boxed_local()
    }
}

/// A program that is not run by a manager.
pub(crate) struct Program<W, P, S, E> {
    pub(crate) outside: W,
    pub(crate) program: P,
    pub(crate) story: S,
    pub(crate) external: PhantomData<fn() -> E>,
}

impl<W, P, S, E> Subject for Program<W, P, S, E>
where
    W: Fn(&Outside) -> E + Send + Sync + 'static,
    P: AsyncFn(Life, &E) + Send + Sync + 'static,
    S: AsyncFn(&User) + Send + Sync + 'static,
    E: 'static,
{
    fn begin(&self, outside: &Outside) -> Box<dyn Actors + '_> {
        Box::new(ProgramActors { subject: self, external: (self.outside)(outside) })
    }
}

struct ProgramActors<'a, W, P, S, E> {
    subject: &'a Program<W, P, S, E>,
    external: E,
}

impl<W, P, S, E> Actors for ProgramActors<'_, W, P, S, E>
where
    P: AsyncFn(Life, &E),
    S: AsyncFn(&User),
{
    fn live(&self, life: Life) -> LocalBoxFuture<'_, Result<(), String>> {
        (self.subject.program)(life, &self.external).map(Ok).boxed_local()
    }

    fn tell<'a>(&'a self, user: &'a User) -> LocalBoxFuture<'a, ()> {
        (self.subject.story)(user).boxed_local()
    }
}
