// With --require: loads the addon at WARPJOIN_ADDON in place of build/Release/warpjoin.node.
const Module = require('node:module');
const { sep } = require('node:path');

const usual = ['build', 'Release', 'warpjoin.node'].join(sep);
const load = Module._extensions['.node'];
Module._extensions['.node'] = (module, path) => load(module, path.endsWith(usual) ? process.env.WARPJOIN_ADDON : path);
