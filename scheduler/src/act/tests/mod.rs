//! Writes against an API server double, under paused time.

mod server;
mod troubles;
mod writes;

use std::{collections::HashMap, time::Duration};

use tokio::time::{Instant, sleep_until};

use crate::{
    act::{Act, ActSettings, Answer, Ended},
    decide::action::Action,
    lease::Leadership,
};
use server::{Server, view};

fn settings(concurrency: usize) -> ActSettings {
    ActSettings {
        concurrency,
        per_second: None,
        write_timeout: Duration::from_secs(5),
        dry_run: false,
    }
}

fn act(server: &Server, concurrency: usize) -> Act {
    act_with(server, settings(concurrency))
}

fn act_with(server: &Server, settings: ActSettings) -> Act {
    let (follower, view) = view(server);
    // The View stays without its reflectors.
    drop(follower);
    Act::new(server.client(), Leadership::alone(), view, None, settings)
}

/// Carries actions out as the scheduler does: what failed is tried again after its pause, until all are done.
async fn carry_out(act: &mut Act, actions: Vec<Action>) -> Vec<Answer> {
    let mut ready = actions;
    ready.reverse();
    let mut later: Vec<(Instant, Action)> = Vec::new();
    let mut answers = Vec::new();
    let mut failures: HashMap<String, u32> = HashMap::new();
    loop {
        let now = Instant::now();
        later.retain(|(at, action)| {
            let due = *at <= now;
            if due {
                ready.push(action.clone());
            }
            !due
        });
        while act.has_room()
            && let Some(action) = ready.pop()
        {
            act.submit(action);
        }
        if act.in_flight() == 0 && ready.is_empty() && later.is_empty() {
            return answers;
        }
        let next = later
            .iter()
            .map(|(at, _)| *at)
            .min()
            .unwrap_or_else(|| now + Duration::from_secs(3600));
        tokio::select! {
            answer = act.next() => {
                if let Ended::Failed { retry_after, .. } = &answer.ended {
                    let times = failures.entry(answer.action.target.object.to_string()).or_default();
                    *times += 1;
                    let pause = retry_after.unwrap_or(Duration::from_secs(1) * 2_u32.pow(*times));
                    later.push((Instant::now() + pause, answer.action.clone()));
                }
                answers.push(answer);
            }
            () = sleep_until(next) => {}
        }
    }
}
