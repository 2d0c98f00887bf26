// Builds dist/, which is committed. The output is identical on every machine.
import { copyFileSync } from "node:fs";
import { build } from "esbuild";

await build({
  entryPoints: { app: "src/main.tsx" },
  outdir: "dist",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
});
await build({ entryPoints: { app: "src/style.css" }, outdir: "dist", minify: true });
for (const name of ["index.html", "icon.svg"]) copyFileSync(`src/${name}`, `dist/${name}`);
