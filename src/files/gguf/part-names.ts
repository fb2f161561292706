/** Names of parts: NAME-00001-of-00003.gguf. */
export const PART: RegExp = /-\d{5}-of-(?!00000)(\d{5})\.gguf$/i;
