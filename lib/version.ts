/** The version of this package, and of the addons that it loads. A test compares it with package.json. */
export const VERSION = '0.1.0';
