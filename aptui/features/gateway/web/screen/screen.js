// Gets a ticket for one screen with this tab's token, then lets textual-serve's terminal open it.

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem("token", given);
  history.replaceState(null, "", location.pathname);
}
window.addEventListener("hashchange", () => location.reload());

const body = document.body, notice = document.querySelector("#notice p"), again = document.getElementById("start");
again.onclick = () => location.reload();

function tell(text, isWayBack = true) {
  notice.textContent = text;
  again.hidden = !isWayBack;
}

async function open() {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem("token") ?? ""}` };
  const answer = await fetch("/ticket", { method: "POST", headers }).catch(() => null);
  if (!answer) return tell("the server does not answer: is 'aptui web' still running?");
  if (answer.status === 401) return tell("this token is not valid: open the address that 'aptui web' prints", false);
  if (!answer.ok) return tell(await answer.text());
  const socket = new URL(`/ws/${(await answer.json()).ticket}`, location.href);
  socket.protocol = socket.protocol.replace("http", "ws");
  document.getElementById("terminal").dataset.sessionWebsocketUrl = socket.href;
  const script = document.createElement("script");
  script.src = "/static/js/textual.js";
  // The script of textual-serve starts at the event `load`, which is over, so the event is sent again.
  script.onload = () => window.onload(new Event("load"));
  document.head.append(script);
}

new MutationObserver(() => {
  // The terminal gets the focus with its first picture, so that the user need not click into it.
  if (body.classList.contains("-first-byte")) document.querySelector(".xterm-helper-textarea")?.focus();
  if (body.classList.contains("-closed")) tell("the screen was left");
}).observe(body, { attributeFilter: ["class"] });
open();
