#[derive(Debug)]
pub(super) struct Secrets;
impl Secrets {
    pub(super) fn parse(_text: &str) -> Result<Self, String> {
        Ok(Secrets)
    }
    pub(super) fn sign(&self, _id: &str, _t: u64, _body: &[u8]) -> String {
        String::new()
    }
}
