//! A broker in this process: for tests of logic, and for faults that no server can be made to show.
use std::time::Duration;
use crate::*;
/// Placeholder until the memory connector lands in the next commit.
#[derive(Debug, Clone)] pub struct Config;
struct Nothing;
#[async_trait::async_trait] impl Source for Nothing {
 async fn recv(&self)->Result<Batch,ConnectorError>{std::future::pending().await} async fn ack(&self,_:BatchId)->Result<(),ConnectorError>{Ok(())}
 async fn nack(&self,_:BatchId)->Result<(),ConnectorError>{Ok(())} async fn pause(&self,_:bool)->Result<(),ConnectorError>{Ok(())} async fn close(self:Box<Self>)->Result<(),ConnectorError>{Ok(())} }
#[async_trait::async_trait] impl Sink for Nothing { async fn publish(&self,_:Vec<Publication>){} async fn exists(&self,_:&Destination)->Result<bool,ConnectorError>{Ok(true)} async fn close(self:Box<Self>)->Result<(),ConnectorError>{Ok(())} }
pub(crate) fn source(_:&Config,_:SourceOptions)->Result<impl Source+use<>,ConnectorError>{Ok(Nothing)}
pub(crate) fn sink(_:&Config,_:Duration)->Result<(impl Sink+use<>,Outcomes),ConnectorError>{Ok((Nothing,tokio::sync::mpsc::unbounded_channel().1))}
pub(crate) fn declare(_:&Config,_:&Destination,_:Role)->Declared{Declared::Existed}
pub(crate) fn allows(_:&str,_:&Destination)->bool{true}
