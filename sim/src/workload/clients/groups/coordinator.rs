//! A member's way to its coordinator: finding it, and asking it.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use quorate_net::kafka::Call;
use quorate_net::kafka::messages::FindCoordinatorRequest;

use super::super::super::client::{Link, within};
use super::super::Scene;
use crate::history::groups::Claim;
use crate::workload::members::{code_of, group_name};

/// The version that all members ask in.
const FIND: i16 = 4;

/// The connection to a group's coordinator, while there is one. The lock is never waited for: it
/// lets a member be lent while it waits for something else.
#[derive(Default)]
pub(super) struct Coordinator {
    link: Mutex<Option<Link>>,
}

impl Coordinator {
    /// Asks, and waits for the answer so much longer than usual. Without one, the next question
    /// finds the coordinator anew.
    pub(super) async fn ask<R: Call>(
        &mut self,
        scene: &Scene,
        who: &Claim,
        (version, patience): (i16, Duration),
        request: &R,
    ) -> io::Result<R::Response> {
        let known = self.link.get_mut().expect("one thread").take();
        let mut link = match known {
            Some(link) => link,
            None => find(scene, who).await?,
        };
        let most = scene.timeout() + patience;
        let response = within(&*scene.clock, most, link.call(version, request)).await?;
        self.link = Mutex::new(Some(link));
        Ok(response)
    }
}

/// A connection to the coordinator of the member's group.
async fn find(scene: &Scene, who: &Claim) -> io::Result<Link> {
    let nowhere = || io::Error::other("no node answers");
    let mut link = scene.connect(who.client).await.ok_or_else(nowhere)?;
    let name = group_name(who.group);
    let request =
        FindCoordinatorRequest { key: name.clone(), key_type: 0, coordinator_keys: vec![name] };
    let answer = within(&*scene.clock, scene.timeout(), link.call(FIND, &request)).await?;
    let found = answer.coordinators.first().ok_or_else(|| io::Error::other("an empty response"))?;
    if let Some(code) = code_of(found.error_code) {
        scene.stage.note(who.client, format!("finds no coordinator of g{}: {code}", who.group));
        return Err(io::Error::other(code.name()));
    }
    let address = format!("{}:{}", found.host.as_str(), found.port);
    scene.connect_to(who.client, &address).await.ok_or_else(nowhere)
}
