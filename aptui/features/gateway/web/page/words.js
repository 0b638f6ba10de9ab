// The texts of the page, and the section for each product. These functions need no browser, so that Node can test them.

export const KINDS = {
  textures: ["ktx2", "dds"],
  pictures: ["webp", "png", "jpg", "jpeg"],
  meshes: ["glb"],
  sounds: ["flac", "wav", "ogg", "opus", "mp3"],
};

export const kindOf = ({ path }) => Object.keys(KINDS).find((kind) => KINDS[kind].includes(path.split(".").at(-1))) ?? "others";

export const sized = (bytes) => (bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(1)} KiB`);

/** Return [text, mood] for the numbers of pending and failed jobs. */
export function stateOf({ waiting, running, failed }) {
  const left = waiting + running, jobs = (count) => `${count} ${count === 1 ? "job" : "jobs"}`;
  if (left) return [`${jobs(left)} to do`, "busy"];
  if (failed) return [`${jobs(failed)} failed, everything else is current`, "wrong"];
  return ["everything is current", "good"];
}
