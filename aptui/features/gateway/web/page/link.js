// The connection to the gateway: a WebSocket for notifications, and GET requests for bytes. `page.js` draws the data.

const VERSION = 1;
const RETRY_MS = [250, 4000];

export class Link {
  /** `token` opens the gateway; `hear` is called with each array of notifications, `meet` with the welcome, `lose` with the reason for a lost connection. */
  constructor(token, { hear, meet, lose }) {
    this.token = token;
    this.tell = { hear, meet, lose };
    this.wait = RETRY_MS[0];
    this.open();
  }

  open() {
    const address = new URL("/v1/connect", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    // The token is sent as a subprotocol, because a page cannot set other headers of a WebSocket, and a token in the address would be logged.
    const socket = new WebSocket(address, ["aptui.v1", `aptui.token.${this.token}`]);
    socket.onopen = () => socket.send(JSON.stringify({ id: 1, request: "hello", protocol: VERSION, client: "demo page", wants_catalog: true }));
    socket.onmessage = ({ data }) => this.handle(JSON.parse(data));
    socket.onclose = () => this.again();
  }

  handle(said) {
    if (said.notices) this.tell.hear(said.notices);
    else if (said.answer) {
      this.wait = RETRY_MS[0];
      this.tell.meet(said.answer);
    } else if (said.refusal) this.tell.lose(said.refusal.what);
  }

  async again() {
    const answer = await fetch("/v1/protocol", { headers: this.headers() }).catch(() => null);
    if (answer?.status === 401) {
      this.tell.lose("this token is no longer valid: open the address that 'aptui demo --web' prints", true);
      return;
    }
    this.tell.lose("waiting for the gateway");
    setTimeout(() => this.open(), this.wait);
    this.wait = Math.min(2 * this.wait, RETRY_MS[1]);
  }

  headers() {
    return { Authorization: `Bearer ${this.token}` };
  }

  /** Return the bytes of a product and their ETag, or the picture and the facts of a texture; null if the product still has this ETag. */
  async product(asset, etag = "", root = "/v1/products") {
    const path = asset.path.split("/").map(encodeURIComponent).join("/");
    const headers = etag ? { ...this.headers(), "If-None-Match": etag } : this.headers();
    const answer = await fetch(`${root}/${encodeURIComponent(asset.platform)}/${path}`, { headers, cache: "no-store" });
    if (answer.status === 304) return null;
    if (answer.status === 422) throw new Error(await answer.text());
    if (!answer.ok) throw new Error(answer.status === 404 ? "it is gone" : `the gateway says ${answer.status}`);
    const [facts, got] = ["Texture-Facts", "ETag"].map((name) => answer.headers.get(name) ?? "");
    return { bytes: await answer.arrayBuffer(), etag: got, facts };
  }
}
