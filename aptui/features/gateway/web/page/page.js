// The page shows a card for each source whose products can be drawn, and a line for every other product. A card is drawn again when the
// gateway reports a change of its products.

import { Link } from "./link.js";
import { readModel, Stage } from "./mesh.js";
import { Sound } from "./sound.js";
import { kindOf, sized, stateOf } from "./words.js";

const LEVELS = 4;
const $ = (id) => document.getElementById(id);
const sourceOf = (asset) => asset.id.split(":")[0];
const keyOf = ({ platform, path }) => `${platform}/${path}`;

const assets = new Map(); // "platform/path" → asset
const cards = new Map(); // source → Card
const lines = new Map(); // "platform/path" → <li>
let platform = "";
let incoming = null;

// --------------------------------------------------------------------------------------------------------------------- cards

/** The base class of cards: fetches the products of one source by ETag, and draws when all changed products have arrived. */
class Card {
  constructor(kind, source) {
    this.source = source;
    this.kept = new Map(); // path → {etag, digest, bytes}
    this.since = null;
    this.turn = 0;
    this.element = $("card").content.firstElementChild.cloneNode(true);
    this.element.classList.add({ pictures: "picture", textures: "picture", meshes: "mesh", sounds: "sound" }[kind]);
    [this.tile, this.title, this.took, this.facts] = [".tile", "h3", ".took", ".facts"].map((each) => this.element.querySelector(each));
  }

  /** Draw these products, which are all products of the source. */
  async refresh(link, wanted) {
    const turn = ++this.turn, isFirst = this.kept.size === 0;
    this.name(wanted);
    try {
      const fetched = await Promise.all(wanted.map((asset) => this.fetch(link, asset)));
      if (turn !== this.turn) return; // a newer change is on its way
      const isNew = fetched.some((each, at) => each !== this.kept.get(wanted[at].path));
      this.kept = new Map(wanted.map((asset, at) => [asset.path, fetched[at]]));
      if (isNew) await this.draw(wanted.map((asset, at) => ({ asset, ...fetched[at] })));
      this.facts.classList.remove("wrong");
      if (isNew && !isFirst && turn === this.turn) this.light();
    } catch (error) {
      if (turn !== this.turn) return;
      this.facts.textContent = error.message;
      this.facts.classList.add("wrong");
    }
  }

  async fetch(link, asset) {
    const kept = this.kept.get(asset.path);
    if (kept?.digest === asset.digest) return kept;
    const got = await link.product(asset, kept?.etag, this.root);
    return got ? { ...got, digest: asset.digest } : Object.assign(kept, { digest: asset.digest });
  }

  name(wanted) {
    const path = wanted[0].path;
    this.title.textContent = path.split("/").at(-1);
    this.title.title = this.element.dataset.path = path;
  }

  light() {
    const ms = performance.now() - (this.since ?? performance.now());
    this.since = null;
    this.took.textContent = `${ms.toFixed(0)} ms`;
    this.element.dataset.drawn = Number(this.element.dataset.drawn ?? 0) + 1;
    flash(this.element);
  }
}

class Picture extends Card {
  async draw(products) {
    const drawn = await Promise.all(products.map(async ({ asset, bytes }) => ({ asset, image: await createImageBitmap(new Blob([bytes])) })));
    drawn.sort((a, b) => b.image.width - a.image.width);
    const [{ image, asset }, ...smaller] = drawn;
    const main = canvasOf(image);
    main.className = "main";
    main.setAttribute("role", "img");
    main.setAttribute("aria-label", asset.path);
    main.style.setProperty("--shape", image.width / image.height);
    this.tile.replaceChildren(main);
    this.levels?.remove();
    if (smaller.length) {
      this.levels = document.createElement("div");
      this.levels.className = "levels";
      this.levels.append(...smaller.slice(0, LEVELS).map((each) => canvasOf(each.image)));
      this.tile.after(this.levels);
    }
    this.facts.textContent = `${image.width} × ${image.height} · ${sized(asset.size)}`;
  }
}

/** A texture in a GPU format. The gateway converts the texture to a picture. */
class Texture extends Picture {
  root = "/demo/textures";

  async draw(products) {
    await super.draw(products);
    this.facts.textContent = `${products[0].facts} · ${sized(products[0].asset.size)}`;
  }
}

/** A model, and the triangles of its further levels of detail. */
class Model extends Card {
  async draw(products) {
    const [{ asset }] = products;
    const [model, ...levels] = await Promise.all(products.map(({ bytes }) => readModel(bytes)));
    if (!this.stage) {
      const canvas = this.tile.appendChild(document.createElement("canvas"));
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", asset.path);
      this.stage = new Stage(canvas);
    }
    this.stage.show(model);
    const triangles = [model, ...levels].map((each) => each.triangles.toLocaleString("en")).join(" / ");
    this.facts.textContent = `${triangles} triangles · ${sized(asset.size)}`;
  }
}

class Voice extends Card {
  async draw([{ asset, bytes }]) {
    this.sound ??= new Sound(this.tile, asset.path);
    const { duration, sampleRate } = await this.sound.show(bytes.slice(0)); // decoding takes the buffer away
    this.facts.textContent = `${duration.toFixed(2)} s · ${sized(asset.size)}`;
    this.facts.title = `decoded at ${sampleRate} Hz`;
  }
}

const CARDS = { textures: Texture, pictures: Picture, meshes: Model, sounds: Voice };

function canvasOf(image) {
  const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
  canvas.style.width = `${image.width}px`;
  canvas.getContext("2d").drawImage(image, 0, 0);
  if (image.width >= 32) canvas.style.width = "";
  return canvas;
}

function flash(element) {
  element.classList.remove("is-fresh");
  void element.offsetWidth; // begins the animation anew
  element.classList.add("is-fresh");
}

// ------------------------------------------------------------------------------------------------------------------ shelves

/** Add, update and remove the cards and lines of these sources, or of all sources, according to `assets`. */
function arrange(sources = null) {
  const groups = new Map();
  for (const asset of assets.values()) {
    if (asset.platform !== platform) continue;
    const kind = kindOf(asset);
    if (kind === "others") continue;
    const source = `${kind}/${sourceOf(asset)}`;
    groups.set(source, [...(groups.get(source) ?? []), asset]);
  }
  for (const [source, card] of cards) {
    if (!groups.has(source)) {
      card.element.remove();
      cards.delete(source);
    }
  }
  for (const [source, wanted] of groups) {
    if (sources && !sources.has(source.split("/")[1])) continue;
    const kind = source.split("/")[0];
    wanted.sort((a, b) => a.path.length - b.path.length || a.path.localeCompare(b.path)); // levels have longer names
    if (!cards.has(source)) {
      cards.set(source, new CARDS[kind](kind, source));
      insert($(kind).lastElementChild, cards.get(source).element, wanted[0].path);
    }
    cards.get(source).refresh(link, wanted);
  }
  arrangeLines();
  for (const section of document.querySelectorAll("section")) section.hidden = !section.lastElementChild.children.length;
}

function arrangeLines() {
  for (const [key, line] of lines) {
    if (!assets.has(key) || assets.get(key).platform !== platform) {
      line.remove();
      lines.delete(key);
    }
  }
  for (const [key, asset] of assets) {
    if (asset.platform !== platform || kindOf(asset) !== "others") continue;
    let line = lines.get(key);
    if (!line) {
      line = document.createElement("li");
      line.append(Object.assign(document.createElement("span"), { textContent: asset.path, title: asset.path }), document.createElement("data"));
      lines.set(key, line);
      insert($("others").lastElementChild, line, asset.path);
    } else if (line.dataset.digest !== asset.digest) flash(line);
    line.dataset.digest = asset.digest;
    line.lastElementChild.textContent = sized(asset.size);
  }
}

function insert(shelf, element, path) {
  element.dataset.path = path;
  const after = [...shelf.children].find((each) => each.dataset.path > path);
  shelf.insertBefore(element, after ?? null);
}

function choose(chosen) {
  platform = chosen;
  for (const button of $("platforms").children) button.setAttribute("aria-pressed", button.textContent === chosen);
  for (const card of cards.values()) card.element.remove();
  cards.clear();
  arrange();
}

// --------------------------------------------------------------------------------------------------------------------- news

function hear(notices) {
  const changed = new Set();
  for (const notice of notices) TAKE[notice.notice]?.(notice, changed);
  if (changed.size) arrange(changed);
}

const TAKE = {
  catalog({ assets: part, is_first, is_last }) {
    if (is_first) incoming = new Map();
    for (const asset of part) incoming?.set(keyOf(asset), asset);
    if (!is_last || !incoming) return;
    assets.clear();
    for (const [key, asset] of incoming) assets.set(key, asset);
    incoming = null;
    arrange();
  },
  asset_changed({ asset }, changed) {
    (incoming ?? assets).set(keyOf(asset), asset);
    if (asset.platform !== platform || incoming) return;
    changed.add(sourceOf(asset));
    for (const card of cardsOf(sourceOf(asset))) card.since ??= performance.now();
  },
  asset_removed(gone, changed) {
    const all = incoming ?? assets, known = all.get(keyOf(gone));
    all.delete(keyOf(gone));
    changed.add(sourceOf(known ?? gone));
  },
  source_changed({ uuid }) {
    for (const card of cardsOf(uuid)) card.since = performance.now();
  },
  counts(counts) {
    mood(...stateOf(counts));
  },
  engine_changed({ is_here }) {
    mood(is_here ? "the engine is here" : "waiting for the engine", is_here ? "good" : "wait");
  },
};

function* cardsOf(uuid) {
  for (const kind of Object.keys(CARDS)) if (cards.has(`${kind}/${uuid}`)) yield cards.get(`${kind}/${uuid}`);
}

function meet({ project, platforms, epoch }) {
  $("project").textContent = document.title = project;
  mood(epoch ? "connected" : "waiting for the engine", epoch ? "good" : "wait");
  $("platforms").replaceChildren(...platforms.map((each) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: each });
    button.onclick = () => choose(each);
    return button;
  }));
  choose(platforms.includes(platform) ? platform : platforms[0]);
}

function mood(text, kind) {
  $("state").textContent = text;
  $("state").dataset.mood = kind;
}

// -------------------------------------------------------------------------------------------------------------------- token

/** Return the token from the page's address, and remove it from the address; without one, return the token that this tab has stored. */
function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("token") ?? "";
}

window.addEventListener("hashchange", () => location.reload());
const link = new Link(token(), { hear, meet, lose: (why, isFinal) => mood(why, isFinal ? "wrong" : "wait") });
